/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of calls whose sources are read in their owners' private memory (libclient/coll/node/cma.c,
 * call.c, fail.c): ranks post where their sources lie, read everybody's and then look at the word
 * behind it, say when that failed, and begin anew in pieces when anybody could not. How they wait
 * for a word is meet.pml's: here a wait is a guard. What spin shows (tests/model/check): a call that
 * is right has everybody's bytes of that very call; and every call ends, also when an owner's call
 * ended amid somebody's reading: by its deadline, by an abort, by its death.
 *
 * As in call.c: the post is step 0 of a call, reading is step 1, and all have to have made that
 * before any returns; then its memory is its caller's, who writes it at once. Who begins anew stages
 * at a step 0 of its own, which is waited for. A call is one piece. In which slot it is staged, and
 * what lies in a rank's slots while it reads (its scratch), is as it is there; a call that was read
 * uses up no slot.
 *
 * Who posts an address, and who stages, is drawn: call.c's reasons are of speed alone, and where
 * members do not agree the call begins anew at once. But in the first call nobody is known to be
 * read yet, so that all stage. The kernel may refuse any reading. FAULTS things go wrong: a rank
 * gives up, the daemon ends the group, or a rank dies, whose number another process has then, which
 * has neither the bytes nor the word.
 *
 * Each of these leaves a part out, and must be found wrong:
 *   NO_WORD WORD_FIRST NO_WITHDRAW WITHDRAW_LATE NO_READ_WAIT NO_UNREAD UNREAD_LATE OWN_UNREAD
 *   NO_BEGIN_ANEW NO_STAGE_WAIT MIXED READ_AT_FIRST
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef FIRST
#define FIRST 1 /* 2: the search begins behind the first call */
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define SLOTS        3
#define SLOT(r, of)  ((r) * SLOTS + (of) % SLOTS)
#define STRANGE      255 /* bytes of nobody's call */

/* The board: a call's post with whether it has an address; two calls of one rank at most are
 * looked at at a time. Steps are counted over all calls. */
byte posted[RANKS], told[RANKS], unread[RANKS];
bool is_address[RANKS * 2];
byte staged[RANKS * SLOTS];
/* What others read: of which call the source is, and whether the word is there. */
byte memory[RANKS];
bool word[RANKS];
bool verdict;
bool is_wanted; /* by who gave up, or found dead by the daemon */
byte faults;

/* A call ends from outside: from here on its caller writes. */
inline withdraw()
{
#ifdef WITHDRAW_LATE
	memory[self] = STRANGE;
	word[self] = false
#else
#ifndef NO_WITHDRAW
	word[self] = false;
#endif
	memory[self] = STRANGE
#endif
}

inline may_die()
{
	if
	:: faults > 0 ->
		atomic {
			faults--;
			word[self] = false;
			memory[self] = STRANGE;
			is_wanted = true
		};
		goto gone
	:: true
	fi
}

/* Until all have come so far; each is waited for alone. A word counts before the verdict. */
#define UNTIL_ALL(has_come, value) \
	i = 0; \
	do \
	:: i == RANKS -> break \
	:: i < RANKS && (i == self || has_come[i] >= value) -> i++ \
	:: i < RANKS && i != self && has_come[i] < value && verdict -> goto over \
	:: i < RANKS && i != self && has_come[i] < value && faults > 0 -> faults--; goto late \
	od

/* The bytes from the first to the last, and the word then, in one call of the kernel. */
inline read_from(member)
{
	is_read = false;
	if
	:: verdict
	:: else ->
		if
		:: true /* the kernel does not */
		:: true ->
#ifdef WORD_FIRST
			is_read = word[member];
#endif
			begin = memory[member];
			end = memory[member];
#ifdef NO_WORD
			is_read = true
#else
#ifndef WORD_FIRST
			is_read = word[member]
#endif
#endif
		fi
	fi;
	is_right = is_right && is_read && begin == call && end == call
}

inline read_all()
{
	/* Its slots are its scratch. */
	d_step {
		staged[SLOT(self, 0)] = STRANGE;
		staged[SLOT(self, 1)] = STRANGE;
		staged[SLOT(self, 2)] = STRANGE
	}
	is_right = true;
	i = 0;
	do
	:: i == RANKS -> break
	:: i == self -> i++
	:: i < RANKS && i != self ->
		read_from(i);
		may_die();
		if
		:: is_read -> i++
		:: else -> break
		fi
	od
}

inline take_all()
{
	is_right = true;
	i = 0;
	do
	:: i == RANKS -> break
	:: i < RANKS ->
		is_right = is_right && (i == self || staged[SLOT(i, slot)] == call);
		i++
	od
}

/* The others may say so until all have begun anew, hence have looked. */
inline look_who_could_not()
{
	is_anew = false;
	i = 0;
	do
	:: i == RANKS -> break
	:: i < RANKS ->
#ifdef OWN_UNREAD
		is_anew = is_anew || (i == self && unread[i] == call);
#else
		is_anew = is_anew || unread[i] == call;
#endif
		i++
	od
#ifdef NO_BEGIN_ANEW
	;
	is_anew = false
#endif
}

proctype rank(byte self)
{
	byte call = FIRST, i, begin, end, addresses;
	byte steps = 2 * (FIRST - 1); /* before this call */
	byte slot = 0;
	bool own, is_read, is_right, is_anew;

	do
	:: call > CALLS -> break
	:: else ->
		memory[self] = call;
		if
#ifndef READ_AT_FIRST
		:: call > 1 -> own = true
#else
		:: own = true
#endif
		:: own = false; staged[SLOT(self, slot)] = call
		fi;
		d_step {
			is_address[self * 2 + call % 2] = own;
			posted[self] = call
		}
		may_die();
		UNTIL_ALL(posted, call);
		atomic {
			addresses = 0;
			i = 0;
			do
			:: i < RANKS -> addresses = addresses + is_address[i * 2 + call % 2]; i++
			:: else -> break
			od;
			is_anew = addresses > 0 && addresses < RANKS
#ifdef MIXED
			;
			is_anew = false;
			addresses = (own -> RANKS : 0)
#endif
		}
		if
		:: addresses == RANKS ->
			read_all();
#ifdef UNREAD_LATE
			told[self] = steps + 1;
#endif
#ifndef NO_UNREAD
			if
			:: !is_read -> unread[self] = call
			:: else
			fi;
#endif
#ifndef UNREAD_LATE
			told[self] = steps + 1;
#endif
#ifndef NO_READ_WAIT
			UNTIL_ALL(told, steps + 1);
#endif
			look_who_could_not();
			steps = steps + 2
		:: else
		fi;
		if
		:: is_anew ->
			staged[SLOT(self, slot)] = call;
			told[self] = steps;
			may_die();
#ifndef NO_STAGE_WAIT
			UNTIL_ALL(told, steps)
#endif
		:: else
		fi;
		if
		:: is_anew || addresses < RANKS ->
			take_all();
			steps = steps + 2;
			slot = (slot + 1) % SLOTS
		:: else
		fi;
		assert(is_right);
		atomic {
			i = 0;
			begin = 0;
			end = 0;
			is_read = false;
			call++
		}
	od;
	goto over; /* the group is freed */
late:
	withdraw();
	is_wanted = true;
	goto gone;
over:
	withdraw();
gone:
	skip
}

/* The daemon: tells all when one has given up or died, and maybe when somebody aborts. */
active proctype daemon()
{
end:
	do
	:: is_wanted && !verdict -> verdict = true
	:: !verdict && faults > 0 -> faults--; verdict = true
	od
}

init
{
	byte p = 0;

	atomic {
		/* Where nothing goes wrong all have to end by themselves. */
		if
		:: faults = 0
		:: faults = FAULTS
		fi;
		do
		:: p < RANKS -> word[p] = true; run rank(p); p++
		:: else -> break
		od
	}
}
