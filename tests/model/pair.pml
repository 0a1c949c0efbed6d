/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of libclient/coll/node/pair*.c: messages from one member to another, each in pieces through
 * two letters, of which one is not what the receiver takes; and a daemon that may break the group at
 * any moment. What spin shows (tests/model/check):
 *   - nobody sleeps for ever, although no sleep has a deadline here (no invalid end state);
 *   - the receiver reads from a letter the piece that it expects there, until it says so.
 *
 * As there: SEQUENCE and FILLED are of struct zi_board_send, EMPTIED is of struct zi_board_take;
 * each message counts one more than it has pieces. Waiting, waking and memory are as in meet.pml,
 * but for words that are waited for until they are at least a value.
 *
 * Each of these leaves a part out, and must be found wrong:
 *   NO_POST_FENCE NO_SLEEP_FENCE NO_LOOK_AGAIN NO_VERDICT_WAIT ONE_LETTER EARLY_EMPTY NO_SKIP
 */
#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef PIECES
#define PIECES 3
#endif
#define MISMATCH 2 /* the number of the message that is not taken */
#ifdef ONE_LETTER
#define LETTER(k) 0
#else
#define LETTER(k) ((k) % 2)
#endif
#define SENDER   0
#define RECEIVER 1
#define SEQUENCE 0 /* words */
#define FILLED   1
#define EMPTIED  2
#define SLEEPING 255 /* as the target of a store: the own line `sleeping` */

byte word[3];
byte letter[2]; /* the piece in it, plus 1 */
bool sleeping[2];
bool is_broken;

bool is_pending[2];
byte pending_target[2], pending_value[2];
byte queued[2]; /* the word a member sleeps on, plus 1 */
bool is_queued_verdict[2];

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
	d_step {
		flush(p);
		is_pending[p] = true;
		pending_target[p] = target;
		pending_value[p] = value
	}
}

active proctype hardware()
{
end:
	do
	:: d_step { is_pending[0] -> flush(0) }
	:: d_step { is_pending[1] -> flush(1) }
	od
}

/* zi_meet_tell_one(): store, fence, wake the peer if it sleeps. */
inline tell(self, w, value)
{
	store(self, w, value);
#ifndef NO_POST_FENCE
	d_step { flush(self) };
#endif
	if
	:: sleeping[1 - self] ->
		d_step {
			flush(self);
			if
			:: queued[1 - self] == w + 1 -> queued[1 - self] = 0
			:: else
			fi
		}
	:: else
	fi
}

/* zi_meet_wait() and the look after it: until word w is at least n; on a verdict it is over. */
inline wait_for(self, w, n)
{
	do
	:: word[w] >= n -> break
	:: is_broken -> goto over
	:: atomic { word[w] < n && !is_broken -> seen = word[w] };
		store(self, SLEEPING, 1);
#ifndef NO_SLEEP_FENCE
		d_step { flush(self) };
#endif
		d_step { /* futex_waitv() */
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
}

/* fill(): as many letters as are free. */
inline fill()
{
	d_step { seen = word[EMPTIED] };
	do
	:: piece < PIECES && base + piece - seen < 2 ->
		letter[LETTER(base + piece)] = base + piece + 1;
		piece++
	:: else -> break
	od
}

proctype sender()
{
	byte n = 1, base, piece, seen, before;

	do
	:: n > MESSAGES -> break
	:: else ->
		piece = 0;
		fill();
		store(SENDER, FILLED, base + piece);
		tell(SENDER, SEQUENCE, n);
		do
		:: word[EMPTIED] >= base + PIECES + 1 -> break
		:: else ->
			before = piece;
			fill();
			if
			:: piece > before -> tell(SENDER, FILLED, base + piece)
			:: else
			fi;
			if
			:: piece < PIECES -> wait_for(SENDER, EMPTIED, base + piece - 1)
			:: else -> wait_for(SENDER, EMPTIED, base + PIECES + 1)
			fi
		od;
		base = base + PIECES + 1;
		n++
	od;
over:
	skip
}

proctype receiver()
{
	byte n = 1, base, piece, seen;

	do
	:: n > MESSAGES -> break
	:: else ->
		wait_for(RECEIVER, SEQUENCE, n);
		piece = 0;
		do
		:: n == MISMATCH || piece == PIECES -> break
		:: else ->
			wait_for(RECEIVER, FILLED, base + piece + 1);
#ifdef EARLY_EMPTY
			tell(RECEIVER, EMPTIED, base + piece + 1);
#endif
			assert(letter[LETTER(base + piece)] == base + piece + 1); /* copying … */
			assert(letter[LETTER(base + piece)] == base + piece + 1); /* … to its end */
			piece++;
#ifndef EARLY_EMPTY
			if
			:: piece < PIECES -> tell(RECEIVER, EMPTIED, base + piece)
			:: else
			fi
#endif
		od;
#ifdef NO_SKIP
		/* Only what was read is counted. */
		tell(RECEIVER, EMPTIED, base + piece + 1);
#else
		tell(RECEIVER, EMPTIED, base + PIECES + 1);
#endif
		base = base + PIECES + 1;
		n++
	od;
over:
	skip
}

/* Nothing, or a verdict, at any time. */
proctype daemon()
{
	if
	:: skip
	:: is_broken = true;
		d_step {
			is_queued_verdict[0] = false;
			is_queued_verdict[1] = false
		}
	fi
}

init
{
	atomic {
		run sender();
		run receiver();
		run daemon()
	}
}
