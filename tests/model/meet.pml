/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of libclient/coll/meet.c: ranks that post, wait, sleep and are woken, and a daemon that may
 * break the group at any moment. Checked with spin (tests/model/check):
 *   - nobody sleeps for ever (no invalid end state) although every sleep has no deadline here;
 *   - a rank leaves call n only when all have posted n, unless the group is broken;
 *   - a slot is never written while a peer may still read the call before the last in it.
 * Memory is sequentially consistent here but for one thing: a store may be delayed beyond a later
 * load of the same process (x86's store buffer), which is what the fences forbid. It is modelled by
 * one pending store per process, flushed at any time, and by force at a fence.
 * -DNO_FENCE, -DNO_VERDICT_WAIT, -DONE_SLOT leave a part out: each must be caught.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifdef ONE_SLOT
#define SLOT(n) 0
#else
#define SLOT(n) ((n) % 2)
#endif

byte posted[RANKS * 2];   /* sequence in a slot */
byte data[RANKS * 2];     /* what a slot says: the number of its call */
bool sleeping[RANKS];
bool is_broken;

/* The store buffer: one entry. kind 0 none, 1 posted[index], 2 sleeping[index]. */
byte pending_kind[RANKS], pending_index[RANKS], pending_value[RANKS];

/* Futexes: who sleeps on which slot; a wake clears it. */
bool on_slot[RANKS * RANKS * 2];
bool on_verdict[RANKS];

inline flush(p)
{
	if
	:: pending_kind[p] == 1 -> posted[pending_index[p]] = pending_value[p]
	:: pending_kind[p] == 2 -> sleeping[pending_index[p]] = pending_value[p]
	:: else
	fi;
	pending_kind[p] = 0; pending_index[p] = 0; pending_value[p] = 0
}

/* The store buffer drains by itself, at any time. */
active proctype hardware()
{
	byte p;
end:
	do
	:: atomic { pending_kind[0] != 0 -> flush(0) }
	:: atomic { pending_kind[1] != 0 -> flush(1) }
#if RANKS > 2
	:: atomic { pending_kind[2] != 0 -> flush(2) }
#endif
	od
}

inline fence(p)
{
#ifndef NO_FENCE
	d_step { flush(p) }
#endif
	skip
}

inline store(p, kind, index, value)
{
	atomic {
		flush(p); /* one entry: the older store goes first, as in a buffer */
		pending_kind[p] = kind; pending_index[p] = index; pending_value[p] = value
	}
}

/* FUTEX_WAKE on slot s: everyone who sleeps there. A system call drains the buffer. */
inline wake_slot(p, s)
{
	d_step {
		flush(p);
		q = 0;
		do
		:: q < RANKS ->
			if
			:: on_slot[q * RANKS * 2 + s] ->
				on_slot[q * RANKS * 2 + s] = false; on_verdict[q] = false
			:: else
			fi;
			q++
		:: else -> break
		od;
		q = 0
	}
}

proctype rank(byte self)
{
	byte n = 1, m, q, s;
	bool is_awake;

	do
	:: n > CALLS -> break
	:: else ->
		/* post: data first (released with the number), then the number */
		data[self * 2 + SLOT(n)] = n;
		store(self, 1, self * 2 + SLOT(n), n);
		fence(self);
		m = 0;
		do
		:: m < RANKS ->
			if
			:: m != self && sleeping[m] -> wake_slot(self, self * 2 + SLOT(n)); break
			:: else -> m++
			fi
		:: else -> break
		od;
		/* wait for each */
		m = 0;
		do
		:: m == RANKS -> break
		:: m < RANKS && m == self -> m++
		:: m < RANKS && m != self ->
			s = m * 2 + SLOT(n);
			do
			:: posted[s] == n ->
				assert(data[s] == n); /* still this call's */
				break
			:: is_broken -> goto over
			:: posted[s] != n && !is_broken ->
				store(self, 2, self, 1);
				fence(self);
				/* futex_waitv: compares and sleeps at once. The system call reads
				 * memory; without a fence our own store may still be buffered. */
				atomic {
					if
#ifdef NO_VERDICT_WAIT
					:: posted[s] != n ->
						on_slot[self * RANKS * 2 + s] = true
#else
					:: posted[s] != n && !is_broken ->
						on_slot[self * RANKS * 2 + s] = true;
						on_verdict[self] = true
#endif
					:: else
					fi
				}
				!on_slot[self * RANKS * 2 + s]; /* until woken */
				store(self, 2, self, 0)
			od;
			m++
		od;
		n++
	od;
over:
	skip;
	atomic { flush(self) }
}

/* Breaks the group, or not, at any time. */
proctype daemon_breaks()
{
	byte q, s;

	if
	:: skip
	:: is_broken = true;
		d_step {
			q = 0;
			do
			:: q < RANKS ->
				if
				:: on_verdict[q] ->
					on_verdict[q] = false;
					s = 0;
					do
					:: s < RANKS * 2 ->
						on_slot[q * RANKS * 2 + s] = false; s++
					:: else -> break
					od
				:: else
				fi;
				q++
			:: else -> break
			od
		}
	fi
}

init
{
	byte i = 0;

	atomic {
		do
		:: i < RANKS -> run rank(i); i++
		:: else -> break
		od;
		run daemon_breaks()
	}
}
