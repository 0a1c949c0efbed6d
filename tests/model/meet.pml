/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of common/wire/meet.c and of the calls that use it: ranks that post, wait, sleep, are
 * woken and finish, one of which may be killed at any moment, and a daemon that may break the group
 * at any moment and does so when a rank dies. What spin shows (tests/model/check):
 *   - nobody sleeps for ever, although no sleep has a deadline here (no invalid end state);
 *   - a rank reads from a peer's post, and from its arena, what that peer had there for this call:
 *     nothing is written while somebody may still read it.
 *
 * As in meet.c and posts.c: word(m, n) is posts[n % SLOTS].sequence of member m, beside it are what
 * it says and how far its member has looked; finished(m) is its line `finished`. There are fewer
 * slots than in life, so that few calls go around them.
 * Odd calls are long (data lie in arenas, and all meet once more at the end), even ones travel with
 * the post. A wake-up reaches those who sleep on that word; futex_waitv() enqueues on one word
 * after the other, comparing each.
 *
 * Memory: what is stored may become visible after later loads of the same process (x86's store
 * buffer; that is what the two fences forbid). One pending store per process, flushed at any time,
 * by force at a fence, at a system call that wakes and before the next store. Other reorderings
 * are left to acquire and release, which ThreadSanitizer watches (tests/stress/coll.c).
 *
 * With -DREFUSALS member 0 refuses calls: whoever reads that goes on at once, and the next call first
 * waits until all have posted the one before.
 *
 * With -DAHEAD=1 or 2 members need nothing from the others in some calls, and go on as soon as they have
 * posted; they look at what others posted later, before they would be too far ahead. With -DAHEAD=3
 * the others lean on one such member: they go on as soon as they have its data. That takes three
 * members, which -DAWAKE makes few enough states of: nobody sleeps, and stores are seen in order.
 *
 * Each of these leaves a part out, and must be found wrong:
 *   NO_POST_FENCE NO_SLEEP_FENCE NO_LOOK_AGAIN NO_VERDICT_WAIT NO_VERDICT_WAKE NO_BREAK_ON_DEATH
 *   ONE_SLOT NO_FINISH; with REFUSALS: NO_CATCH_UP; with AHEAD: NO_CATCH_UP NO_LIMIT NO_LEFT
 *   NO_ROOT_WAIT ROOT_FOR_ALL
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#if defined(ONE_SLOT)
#define SLOTS 1
#elif defined(AHEAD)
#define SLOTS 3
#else
#define SLOTS 2
#endif
/* Member 0 refuses calls 1 and 2, where it is asked to. */
#ifdef REFUSALS
#define REFUSES(m, n) ((m) == 0 && (n) > 0 && (n) <= 2)
#else
#define REFUSES(m, n) false
#endif
/* Who is ahead in the first calls; then one is long. 1: member 0 in two of them, then member 1 in as
 * many as there may be. 2: all, as those of a gather are who are not its root. 3: a root, first
 * member 0, then 1, on whom all others lean. */
#if AHEAD == 1
#define IS_AHEAD(m, n) (((n) <= 2 && (m) == 0) || ((n) > 2 && (n) <= 5 && (m) == 1))
#elif AHEAD == 2
#define IS_AHEAD(m, n) ((n) <= 5)
#elif AHEAD == 3
#define ROOT(n)        ((n) <= 3 -> 0 : 1)
#define IS_AHEAD(m, n) ((n) <= 5 && (m) == ROOT(n))
#define LEANS(m, n)    ((n) <= 5 && (m) != ROOT(n))
#else
#define IS_AHEAD(m, n) false
#endif
#ifndef LEANS
#define ROOT(n)     0
#define LEANS(m, n) false
#endif
#ifdef AHEAD
#define IS_LONG(n) ((n) > 5)
#else
#define IS_LONG(n) ((n) % 2)
#endif
#define WORDS       (SLOTS + 1) /* of a member */
#define POST(m, n)  ((m) * WORDS + (n) % SLOTS)
#define FINISHED(m) ((m) * WORDS + SLOTS)
/* What must be looked at before call n: all calls before; or, ahead, so that slots are free. Who was
 * as far ahead as it may be waits until it is half as far. */
#ifdef NO_LIMIT
#define IS_TOO_FAR(n) false
#else
#define IS_TOO_FAR(n) ((n) - looked >= SLOTS)
#endif
#ifdef NO_LEFT
#define IS_TAKEN(n) false
#else
#define IS_TAKEN(n) ((n) > SLOTS + left)
#endif
#ifdef NO_CATCH_UP
#define IS_BEHIND(n) false
#else
#define IS_HELD(n)   (is_held && (n) - looked >= (SLOTS + 1) / 2)
#define IS_BEHIND(n) \
	(looked < (n) - 1 && \
	 (!(IS_AHEAD(self, n) || LEANS(self, n)) || IS_TOO_FAR(n) || IS_HELD(n) || IS_TAKEN(n)))
#endif
#define SLEEPING    255 /* as the target of a store: the own line `sleeping` */

byte word[RANKS * WORDS];  /* sequence numbers */
byte said[RANKS * WORDS];  /* what a post says: the number of its call */
byte shown[RANKS * WORDS]; /* the newest call of which its member had looked at all posts */
byte arena[RANKS];         /* the call whose data lie there; 0: the owner's own things again */
bool sleeping[RANKS];      /* the line */
bool is_broken;            /* the verdict */
bool is_killed[RANKS];

/* The store buffers. */
bool is_pending[RANKS];
byte pending_target[RANKS], pending_value[RANKS];

/* The kernel's queues: the word a rank sleeps on, plus 1; and whether it is on the verdict. */
byte queued[RANKS];
bool is_queued_verdict[RANKS];

inline flush(p)
{
	if
	:: is_pending[p] && pending_target[p] == SLEEPING -> sleeping[p] = pending_value[p]
	:: is_pending[p] && pending_target[p] != SLEEPING ->
		word[pending_target[p]] = pending_value[p]
	:: else
	fi;
	is_pending[p] = false;
	pending_target[p] = 0;
	pending_value[p] = 0
}

inline store(p, target, value)
{
#ifdef AWAKE
	word[target] = value
#else
	d_step {
		flush(p);
		is_pending[p] = true;
		pending_target[p] = target;
		pending_value[p] = value
	}
#endif
}

#ifndef AWAKE
active proctype hardware()
{
end:
	do
	:: d_step { is_pending[0] -> flush(0) }
	:: d_step { is_pending[1] -> flush(1) }
#if RANKS > 2
	:: d_step { is_pending[2] -> flush(2) }
#endif
#if RANKS > 3
	:: d_step { is_pending[3] -> flush(3) }
#endif
	od
}
#endif

/* wake(): after a store to word w, whoever sleeps there, if anybody seems to sleep at all. */
inline wake(w)
{
#ifndef AWAKE
#ifndef NO_POST_FENCE
	d_step { flush(self) };
#endif
	m = 0;
	do
	:: m < RANKS && m != self && sleeping[m] ->
		d_step {
			flush(self);
			m = 0;
			do
			:: m < RANKS ->
				if
				:: queued[m] == w + 1 -> queued[m] = 0
				:: else
				fi;
				m++
			:: else -> break
			od
		};
		break
	:: m < RANKS && (m == self || !sleeping[m]) -> m++
	:: m == RANKS -> break
	od;
	m = 0
#else
	skip
#endif
}

/* zi_meet_wait() and the look after it: until word w is at least n; on a verdict it is over. */
inline wait_for(w, n)
{
#ifdef AWAKE
	if
	:: word[w] >= n
	:: is_broken -> goto over
	fi
#else
	do
	:: word[w] >= n -> break
	:: is_broken -> goto over
	:: atomic { word[w] < n && !is_broken -> seen = word[w] };
		store(self, SLEEPING, 1);
#ifndef NO_SLEEP_FENCE
		d_step { flush(self) };
#endif
		/* futex_waitv() */
		d_step {
			if
#ifdef NO_LOOK_AGAIN
			:: true -> queued[self] = w + 1
#else
			:: word[w] == seen -> queued[self] = w + 1
			:: else
#endif
			fi
		};
#ifndef NO_VERDICT_WAIT
		d_step {
			if
			:: queued[self] && is_broken -> queued[self] = 0
			:: queued[self] && !is_broken -> is_queued_verdict[self] = true
			:: else
			fi
		};
		!(queued[self] && is_queued_verdict[self]); /* asleep until this holds */
#else
		!queued[self];
#endif
		d_step {
			queued[self] = 0;
			is_queued_verdict[self] = false
		};
		store(self, SLEEPING, 0)
	od
#endif
}

/* All posts of call c, one after the other. Refused calls are not compared. */
inline look_at(c)
{
	i = 0;
	lowest = c - 1;
	do
	:: i == RANKS -> break
	:: i < RANKS && i == self -> i++
	:: i < RANKS && i != self ->
		wait_for(POST(i, c), c);
		assert(said[POST(i, c)] == c);
		if
		:: shown[POST(i, c)] < lowest -> lowest = shown[POST(i, c)]
		:: else
		fi;
		i++
	od;
	looked = c;
	left = lowest;
	lowest = 0;
	i = 0
}

proctype rank(byte self)
{
	byte n = 1, i, m, seen;
	byte looked, left, lowest; /* as group->seen and group->left */
	bool is_held;

	{
		do
		:: n > CALLS -> break
		:: else ->
			do
			:: !IS_BEHIND(n) -> break
			:: IS_BEHIND(n) -> is_held = is_held || IS_TOO_FAR(n); look_at(looked + 1)
			od;
			is_held = false;
			/* post(): the data, then the number (released) */
			skip;
			d_step {
				said[POST(self, n)] = n;
				shown[POST(self, n)] = looked;
				if
				:: IS_LONG(n) -> arena[self] = n
				:: else
				fi
			};
			store(self, POST(self, n), n);
			wake(POST(self, n));
			if
			:: REFUSES(self, n) || IS_AHEAD(self, n) -> goto next
			:: LEANS(self, n) -> /* looks at it; then takes the data */
#ifndef NO_ROOT_WAIT
				wait_for(POST(ROOT(n), n), n);
#endif
				assert(word[POST(ROOT(n), n)] == n);
				assert(said[POST(ROOT(n), n)] == n);
#ifdef ROOT_FOR_ALL
				looked = n;
				left = n - 1;
#endif
				goto next
			:: REFUSES(0, n) -> /* whoever reads that looks no further */
				wait_for(POST(0, n), n);
				assert(said[POST(0, n)] == n);
				goto next
			:: else -> look_at(n)
			fi;
			/* work: everybody's data is read, one after the other */
			i = 0;
			do
			:: i == RANKS -> break
			:: i < RANKS ->
				assert(said[POST(i, n)] == n);
				assert(!IS_LONG(n) || arena[i] == n);
				i++
			od;
			if
			:: IS_LONG(n) ->
				store(self, FINISHED(self), n);
				wake(FINISHED(self));
#ifndef NO_FINISH
				i = 0;
				do
				:: i == RANKS -> break
				:: i < RANKS && i == self -> i++
				:: i < RANKS && i != self -> wait_for(FINISHED(i), n); i++
				od;
#endif
				arena[self] = 0 /* the caller's again */
			:: else
			fi;
next:
			i = 0;
			n++
		od;
over:
		skip
	}
#ifndef NO_DEATHS
	unless {
		is_killed[self];
		d_step { /* the kernel takes a dead process off its queues */
			queued[self] = 0;
			is_queued_verdict[self] = false
		}
	}
#endif
}

/* Nothing, a verdict, or a death and the verdict on it, at any time. */
proctype daemon()
{
	byte q;

	if
	:: goto done
	:: skip
#ifndef NO_DEATHS
	:: is_killed[0] = true
	:: is_killed[1] = true
#endif
	fi;
#ifdef NO_BREAK_ON_DEATH
	goto done;
#endif
	is_broken = true;
#ifndef NO_VERDICT_WAKE
	d_step {
		q = 0;
		do
		:: q < RANKS -> is_queued_verdict[q] = false; q++
		:: else -> break
		od;
		q = 0
	};
#endif
done:
	skip
}

init
{
	byte p = 0;

	atomic {
		do
		:: p < RANKS -> run rank(p); p++
		:: else -> break
		od;
		run daemon()
	}
}
