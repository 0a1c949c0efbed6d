/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of libclient/coll/node/posts.c and differ.c: calls that a member refuses, or that differ,
 * where some members need nothing from the others and go on ahead, or lean on one of them: need
 * that one's post alone, and go on when they have it. What spin shows
 * (tests/model/check), for any mix of calls of which FAULTS are wrong:
 *   - who has its error of a call never says it again, and who had gone on says it once: no
 *     member refuses twice for one fault, whatever the others refuse;
 *   - nobody makes a call that somebody refused or made otherwise, and all hear of it by the next
 *     call that all meet in;
 *   - nobody waits for a member that does not come when another has refused the call, or made
 *     another one (-DABSENT): alarms wake who waits for somebody else, and none is lost;
 *   - a call that is canceled before it is posted (-DCANCELS=n: so many of each member, wrong ones
 *     among them) takes nothing along that is due to be told of one before;
 *   - nothing is read that was written over; and with -DBREAKS, where the daemon may break the group
 *     at any time, all are over then.
 * With -DLEANING all calls but the last are such as the others lean on one in, and the first one is
 * wrong: more calls of three members can be searched so.
 *
 * As there: a member's post is its slot of a call, ALARM the line `alarm`, SEEN, LEFT and TOLD are
 * of struct zi_node_group. How a wait sleeps and is woken is meet.pml's: here who waits goes on
 * when a word that it wants has come, and not before. There are fewer slots than in life.
 *
 * Each of these leaves a part out, and must be found wrong:
 *   ECHOES_ECHOED ECHOES_PASSED NOT_TOLD; with CANCELS: DUE_CANCELED; with ABSENT: NO_ALARM_OF_REFUSAL NO_ALARM_OF_DIFFERENCE
 *   NO_ALARM_WANTED NO_LOOK_AHEAD ALARM_FIRST; of three members, who lean: ROOT_UNCHECKED
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 6
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#define SLOTS      3
#define POST(m, n) ((m) * SLOTS + (n) % SLOTS)

/* What a post says. */
#define REFUSED 1
#define ECHO    2
#define OTHER   4 /* than all others call */

/* Calls: all meet; or one member, or all but one, need nothing from the others. Where one does, the
 * others lean on it; of two that is to meet. */
#define MEET      0
#define ONE(m)    (1 + 2 * (m))
#define OTHERS(m) (2 + 2 * (m))
#define IS_AHEAD(m, n) \
	(call[n] == ONE(m) || (call[n] > 0 && call[n] % 2 == 0 && call[n] != OTHERS(m)))
#define ROOT(n)     ((call[n] - 1) / 2)
#define LEANS(m, n) (RANKS > 2 && call[n] % 2 == 1 && call[n] != ONE(m))

byte call[CALLS + 1];
byte refusing[CALLS + 1]; /* members that refuse it, or … */
byte differing[CALLS + 1]; /* … make another call: bits */
byte absent, absent_from;  /* does not come to that call, nor to later ones; RANKS: nobody */

byte word[RANKS * SLOTS];  /* sequence numbers */
byte said[RANKS * SLOTS];  /* REFUSED … */
byte shown[RANKS * SLOTS]; /* the newest call of which its member had looked at all posts */
byte alarm[RANKS];
bool is_broken;

#define OWN(n)         (differing[n] & 1 << self -> OTHER : 0)
#define BIT(n)         (1 << (n) % SLOTS)
#define HAS_COME(m, n) (word[POST(m, n)] >= (n))
#define UNSEEN(n)      ((n) - seen)
/* posts.c, is_behind() */
#define IS_BEHIND(n)      \
	(seen < (n) - 1 &&    \
	 (!is_ahead || UNSEEN(n) >= (is_too_far -> (SLOTS + 1) / 2 : SLOTS) || (n) > SLOTS + left))

#ifdef ECHOES_PASSED
#define PASSES_OVER(m, n) (said[POST(m, n)] & ECHO)
#else
#define CONCERNED(m, n) (is_meeting && !(is_leaning && (m) != ROOT(n)))
#define PASSES_OVER(m, n) (!CONCERNED(m, n) && said[POST(m, n)] & ECHO)
#endif
#define CONTRADICTS(m, n) \
	(!PASSES_OVER(m, n) && (said[POST(m, n)] & REFUSED || (said[POST(m, n)] & OTHER) != OWN(n)))

proctype member(byte self)
{
	byte n = 1, c, i, k;
	byte seen, left, lowest, told;
	byte awaited;                  /* members whose alarms are wanted: bits */
	byte echo_count, error_count, cancel_count;
	bool is_ahead; /* or leans: all need not have come */
	bool is_leaning, is_refused, is_due, is_meeting, is_too_far, is_seen_wrong;
	bool is_canceled; /* as soon as it waits, or else instead of being posted */

next_call:
	if
	:: n > CALLS || (self == absent && n == absent_from) -> goto over
	:: else
	fi;
	d_step {
		is_refused = (refusing[n] & 1 << self) != 0;
		is_canceled = false;
		is_meeting = false;
		is_leaning = false;
		is_too_far = false;
		i = 0
	};
#if CANCELS
	if
	:: cancel_count < CANCELS -> is_canceled = true; cancel_count++; is_refused = false
	:: cancel_count < CANCELS -> is_canceled = true; cancel_count++; is_refused = true
	:: true
	fi;
#endif
	is_ahead = !is_refused && !is_due && (IS_AHEAD(self, n) || LEANS(self, n));

catch_up:
	c = seen + 1;
	is_too_far = is_too_far || (is_ahead && UNSEEN(n) >= SLOTS);
	if
	:: IS_BEHIND(n) -> goto look
	:: else
	fi;

	if
	:: is_canceled -> goto canceled
	:: else
	fi;

	/* zi_node_say(), zi_node_say_refused() */
#ifdef ALARM_FIRST
	if
	:: is_refused || is_due -> alarm[self] = n
	:: else
	fi;
#endif
	d_step {
		said[POST(self, n)] = OWN(n);
		if
#ifdef ECHOES_ECHOED
		:: is_refused || is_due -> said[POST(self, n)] = REFUSED
#else
		:: !is_refused && is_due -> said[POST(self, n)] = REFUSED | ECHO
		:: is_refused -> said[POST(self, n)] = REFUSED
#endif
		:: else
		fi;
		if
		:: !is_refused && is_due ->
			is_refused = true;
			echo_count++;
			assert(echo_count <= FAULTS)
		:: else
		fi;
		is_due = false;
		told = told & ~BIT(n);
		shown[POST(self, n)] = seen;
		word[POST(self, n)] = n /* after the rest: released */
	};
	if
	:: is_refused ->
#if !defined(NO_ALARM_OF_REFUSAL) && !defined(ALARM_FIRST)
		alarm[self] = n;
#endif
#ifndef NOT_TOLD
		told = told | BIT(n);
#endif
		goto failed
	:: !is_refused && is_ahead && !LEANS(self, n) -> goto done
	:: !is_refused && is_ahead && LEANS(self, n) ->
		is_meeting = true;
		is_leaning = true;
		c = n;
		goto lean
	:: else -> is_meeting = true; c = n; goto look
	fi;

	/* zi_node_look_at_root(); the root's post is looked at, and its data are taken after that */
lean:
	if
	:: HAS_COME(ROOT(n), n) ->
		assert(word[POST(ROOT(n), n)] == n);
#ifndef ROOT_UNCHECKED
		if
		:: CONTRADICTS(ROOT(n), n) ->
			is_seen_wrong = (said[POST(ROOT(n), n)] & REFUSED) == 0;
			goto apart
		:: else
		fi;
#endif
		assert(word[POST(ROOT(n), n)] == n && said[POST(ROOT(n), n)] == OWN(n));
		goto done
	:: !HAS_COME(ROOT(n), n) ->
		d_step {
			awaited = 0;
			is_seen_wrong = false;
			k = 0;
			do
			:: k >= RANKS -> break
			:: else ->
				if
				:: k == self
				:: k != self && HAS_COME(k, n) && CONTRADICTS(k, n) ->
					is_seen_wrong = true
				:: k != self && !HAS_COME(k, n) -> awaited = awaited | 1 << k
				:: else
				fi;
				k++
			od;
			k = 0
		};
		if
		:: is_seen_wrong -> goto apart
		:: else
		fi;
		if
		:: is_broken -> goto over
		:: is_canceled -> goto canceled
		:: HAS_COME(ROOT(n), n)
		:: awaited & 1 && alarm[0] >= n -> assert(HAS_COME(0, n))
		:: awaited & 2 && alarm[1] >= n -> assert(HAS_COME(1, n))
#if RANKS > 2
		:: awaited & 4 && alarm[2] >= n -> assert(HAS_COME(2, n))
#endif
		/* Nobody who comes is wrong: the time of who waits ends. */
		:: absent == ROOT(n) && n > absent_from -> goto over
		fi;
		goto lean
	fi;

	/* zi_node_look_at() */
look:
	if
	:: i == 0 -> lowest = c - 1
	:: else
	fi;
	do
	:: i == RANKS -> break
	:: i == self -> i++
	:: i < RANKS && i != self && HAS_COME(i, c) ->
		d_step {
			assert(word[POST(i, c)] == c); /* not written over */
			if
			:: shown[POST(i, c)] < lowest -> lowest = shown[POST(i, c)]
			:: else
			fi
		};
		if
		:: !(told & BIT(c)) && CONTRADICTS(i, c) ->
			is_seen_wrong = (said[POST(i, c)] & REFUSED) == 0;
			goto apart
		:: else -> i++
		fi
	:: i < RANKS && i != self && !HAS_COME(i, c) ->
		/* zi_node_look_ahead() */
		d_step {
			awaited = 0;
			is_seen_wrong = false;
			k = i + 1;
			do
			:: k >= RANKS || told & BIT(c) -> break
			:: else ->
				if
				:: k == self
#ifndef NO_LOOK_AHEAD
				:: k != self && HAS_COME(k, c) && CONTRADICTS(k, c) ->
					is_seen_wrong = true
#endif
#ifndef NO_ALARM_WANTED
				:: k != self && !HAS_COME(k, c) -> awaited = awaited | 1 << k
#endif
				:: else
				fi;
				k++
			od;
			k = 0
		};
		if
		:: is_seen_wrong -> goto apart
		:: else
		fi;
		/* zi_meet_wait(): one branch for each of what is wanted */
		if
		:: is_broken -> goto over
		:: is_canceled -> goto canceled
		/* The time of who waits for what cannot come ends: not that of who makes a wrong call. */
		:: absent < RANKS && c >= absent_from && !is_meeting -> goto over
		:: HAS_COME(i, c)
		:: awaited & 1 && alarm[0] >= c -> assert(HAS_COME(0, c))
		:: awaited & 2 && alarm[1] >= c -> assert(HAS_COME(1, c))
#if RANKS > 2
		:: awaited & 4 && alarm[2] >= c -> assert(HAS_COME(2, c))
#endif
#if RANKS > 3
		:: awaited & 8 && alarm[3] >= c -> assert(HAS_COME(3, c))
#endif
		fi
	od;
	seen = c;
	d_step {
		left = lowest;
		lowest = 0;
		i = 0
	};
	if
	:: is_meeting -> goto work
	:: else -> goto catch_up
	fi;

	/* tell_apart(), where it was not a refusal that was met in turn; zi_node_told() */
apart:
	if
#ifndef NO_ALARM_OF_DIFFERENCE
	:: is_seen_wrong -> alarm[self] = c
#endif
	:: else
	fi;
	d_step {
		is_seen_wrong = false;
		awaited = 0;
		lowest = 0;
		i = 0;
#ifdef NOT_TOLD
		told = (is_meeting -> told : told | BIT(c))
#else
		told = told | BIT(c)
#endif
	};
	if
	:: is_meeting -> goto failed
	:: else -> /* set_due() */
		assert(IS_AHEAD(self, c) || LEANS(self, c)); /* else it had its error */
		is_due = true;
		goto look
	fi;

canceled:
#ifdef DUE_CANCELED
	is_due = is_due && !is_refused;
#endif
	goto next_call;

work:
	k = 0;
	do
	:: k < RANKS -> assert(said[POST(k, n)] == OWN(n)); k++
	:: else -> break
	od;
	goto done;

failed:
	error_count++;
	assert(error_count <= FAULTS * RANKS); /* each, and what each other refuses for it */

done:
	k = 0;
	i = 0;
	n++;
	goto next_call;

over:
	/* The last call is one that all meet in. (Two may be wrong alike, hence right.) */
	assert(is_broken || error_count > 0 || absent < RANKS || FAULTS > 1)
}

/* A fault of some member in call n. */
inline be_wrong(n)
{
	if
	:: absent != 0 -> p = 0
	:: absent != 1 -> p = 1
#if RANKS > 2
	:: absent != 2 -> p = 2
#endif
	fi;
	if
	:: refusing[n] = refusing[n] | 1 << p
	:: call[n] == MEET || absent == RANKS -> differing[n] = differing[n] | 1 << p
	fi
}

init
{
	byte p = 1, c, faults;

	atomic {
		do /* all meet in the last one */
		:: p == CALLS -> break
		:: p < CALLS ->
			if
#ifndef LEANING
			:: call[p] = MEET
#endif
			:: call[p] = ONE(0)
#ifdef LEANING
			:: p > 1 -> call[p] = ONE(1)
#else
			:: call[p] = ONE(RANKS - 1)
#endif
#if RANKS > 2 && !defined(LEANING)
			:: call[p] = OTHERS(0)
#endif
			fi;
			p++
		od;
		absent = RANKS;
#ifdef ABSENT
		/* From some wrong call on. Who is ahead compares nothing, so it must be seen by others. */
		if
		:: absent = 0
		:: absent = 1
#if RANKS > 2
		:: absent = RANKS - 1
#endif
		fi;
		absent_from = 1;
		do
		:: absent_from < CALLS -> absent_from++
		:: break
		od;
		be_wrong(absent_from);
		faults = 1;
#endif
		do /* nobody is wrong in the last one, by which all hear of it */
		:: faults == FAULTS -> break
		:: faults < FAULTS ->
			c = 1;
#ifndef LEANING
			do
			:: c < CALLS - 1 -> c++
			:: break
			od;
#endif
			be_wrong(c);
			faults++
		od;
		p = 0;
		do
		:: p < RANKS -> run member(p); p++
		:: else -> break
		od;
		p = 0;
		c = 0;
#ifdef BREAKS
		if
		:: skip
		:: run daemon()
		fi
#endif
	}
}

proctype daemon()
{
	is_broken = true
}
