/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of calls in pieces (libclient/coll/node/call.c): ranks stage pieces of their sources in slots,
 * work on everybody's, leave results in their own slot, and take everybody's results. How they wait
 * for a word is meet.pml's: here a wait is a guard. What spin shows (tests/model/check): whoever
 * reads a slot finds the piece it expects there, from the first look to the last; a piece of the
 * next call, staged before its post, disturbs nobody.
 *
 * As in call.c: the post is step 0 of a call; at step s a rank takes the results of piece s - 2,
 * works on piece s - 1 and stages piece s, when all have made step s - 1; the last step is not told.
 * Calls have 1, 2, … pieces in turn. Pieces are numbered on, from 1; piece k lies in slot k mod 3.
 *
 * Each of these leaves a part out, and must be found wrong: TWO_SLOTS NO_STEP_WAIT NO_POST_WAIT
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifdef TWO_SLOTS
#define SLOTS 2
#else
#define SLOTS 3
#endif
#define PIECES_OF(call) (1 + (call) % 3)
#define SLOT(r, piece)  ((r) * SLOTS + (piece) % SLOTS)

byte posted[RANKS]; /* calls */
byte told[RANKS];   /* steps, of all calls */
byte staged[RANKS * SLOTS], results[RANKS * SLOTS]; /* the piece there */

/* Until all have come so far; each is waited for alone. */
#define UNTIL_ALL(word, value) \
	i = 0; \
	do \
	:: i == RANKS -> break \
	:: i < RANKS -> (i == self || word[i] >= value); i++ \
	od

/* Looks at what everybody has in a slot twice: a copy takes its time. */
#define LOOK(where, piece) \
	i = 0; \
	do \
	:: i == RANKS -> break \
	:: i < RANKS -> \
		assert(i == self || where[SLOT(i, piece)] == piece); \
		assert(i == self || where[SLOT(i, piece)] == piece); \
		i++ \
	od

/* The shares of a short piece lie otherwise: what is staged may lie on former results. */
#define STAGE(piece) \
	d_step { staged[SLOT(self, piece)] = piece; results[SLOT(self, piece)] = 0 }

proctype rank(byte self)
{
	byte call = 1, step, i, pieces;
	byte steps = 0; /* before this call */
	byte first = 1; /* its first piece */

	do
	:: call > CALLS -> break
	:: else ->
		pieces = PIECES_OF(call);
		STAGE(first);
		posted[self] = call;
#ifndef NO_POST_WAIT
		UNTIL_ALL(posted, call);
#endif
		step = 1;
		do
		:: step > pieces + 1 -> break
		:: else ->
#ifndef NO_STEP_WAIT
			if
			:: step > 1 -> UNTIL_ALL(told, steps + step - 1)
			:: else
			fi;
#endif
			if
			:: step >= 2 -> LOOK(results, first + step - 2)
			:: else
			fi;
			if
			:: step <= pieces ->
				LOOK(staged, first + step - 1);
				results[SLOT(self, first + step - 1)] = first + step - 1
			:: else
			fi;
			if
			:: step < pieces -> STAGE(first + step)
			:: else
			fi;
			if
			:: step <= pieces -> told[self] = steps + step
			:: else
			fi;
			step++
		od;
		steps = steps + pieces + 2;
		first = first + pieces;
		call++
	od
}

init
{
	byte p = 0;

	atomic {
		do
		:: p < RANKS -> run rank(p); p++
		:: else -> break
		od
	}
}
