/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of commits of a job on several nodes: daemon/zero/step/votes.h, place/former.c and
 * across/agree/resume.c. Each node's disk has two slots for commits; daemons die at any moment, any
 * number of them, others notice it or not before they go on, and all begin anew. What spin shows
 * (tests/model/check):
 *   - there is always a commit to go on from, and all of its group had written it: nobody goes on
 *     from what another one could not write;
 *   - nothing of it was written over on any node that offers it;
 *   - it is not older than what a node was told all have, when all who had it are here.
 * In life extents are divided among nodes (each holds a third: all must come), or with -DCOPIES all
 * hold all, and any of them may come without the others.
 *
 * As there: a slot is spoiled when a step writes where its commit lay, which is free from its
 * release on; votes are seen late, or not at all by who notices a death first.
 *
 * Each of these leaves a part out, and must be found wrong:
 *   NO_PREPARED  who has written commits, whatever becomes of the others (seen with COPIES: where
 *                all must come, what was committed by some is not whole, and goes)
 *   EARLY_RELEASE  the former commit is released with the own new one
 *   NO_FORMER  a commit takes the place of the one before
 *   NO_LINE  commits are known by their number alone (with COPIES, likewise)
 */
#ifndef LIVES
#define LIVES 2
#endif
#ifndef COMMITS
#define COMMITS 2
#endif
#define NODES       3
#define ALL         7
#define NUMBERS     (LIVES * COMMITS + 2)
#define SLOT(i, s)  ((i) * 2 + (s))
#define NAME(n, l)  ((n) * (LIVES + 1) + (l))
#define HAS(i, s, n, l) \
	(is_there[SLOT(i, s)] && number[SLOT(i, s)] == (n) && line[SLOT(i, s)] == (l))
#ifdef NO_LINE
#define IS_CHOSEN(i, s) (is_there[SLOT(i, s)] && number[SLOT(i, s)] == base)
#else
#define IS_CHOSEN(i, s) HAS(i, s, base, base_line)
#endif

/* disks */
byte number[NODES * 2], line[NODES * 2];
bool is_there[NODES * 2], is_spoiled[NODES * 2];

/* of this life */
byte life, present, base, base_line, dead, over;
byte prepared[COMMITS + 1], committed[COMMITS + 1];

/* what the test knows */
bool is_prepared[NUMBERS * (LIVES + 1)];
byte told_number, told_mask;

#define BIT (1 << self)
#define MAY_DIE                                  \
	if                                       \
	:: true                                  \
	:: dead = dead | BIT; goto ended         \
	fi

proctype node(byte self)
{
	byte mine = 0, k, former, fresh;

next_life:
	/* One that stays away may miss a life. */
	atomic {
		life > mine;
		mine = life;
		if
		:: mine > LIVES -> goto done
		:: mine <= LIVES && !(present & BIT) -> goto next_life
		:: else
		fi
	};

	/* former_settle() */
	MAY_DIE;
	d_step {
		k = 0;
		do
		:: k < 2 ->
			is_there[SLOT(self, k)] = IS_CHOSEN(self, k);
			k++
		:: else -> break
		od;
		k = 1
	};

	do
	:: k > COMMITS -> break
	:: k <= COMMITS ->
		/* the step's writes: where what was beside lay */
		MAY_DIE;
		d_step {
			former = (is_there[SLOT(self, 0)] && (!is_there[SLOT(self, 1)] ||
			          number[SLOT(self, 0)] > number[SLOT(self, 1)]) -> 0 : 1);
			fresh = 1 - former;
			is_spoiled[SLOT(self, fresh)] = true
		};
		MAY_DIE;
		d_step {
			prepared[k] = prepared[k] | BIT;
			if
			:: prepared[k] == present -> is_prepared[NAME(base + k, mine)] = true
			:: else
			fi
		};
#ifndef NO_PREPARED
		if
		:: prepared[k] == present
		:: dead & present -> goto ended
		fi;
#endif
		MAY_DIE;
		d_step {
			number[SLOT(self, fresh)] = base + k;
			line[SLOT(self, fresh)] = mine;
			is_there[SLOT(self, fresh)] = true;
			is_spoiled[SLOT(self, fresh)] = false;
#ifdef NO_FORMER
			is_there[SLOT(self, former)] = false;
#endif
#ifdef EARLY_RELEASE
			is_spoiled[SLOT(self, former)] = true;
#endif
		};
		MAY_DIE;
		committed[k] = committed[k] | BIT;
		if
		:: committed[k] == present
		:: dead & present -> goto ended
		fi;
		d_step {
			told_number = base + k;
			told_mask = present;
			k++
		}
	od;

ended:
	skip;
	d_step {
		former = 0;
		fresh = 0;
		k = 0;
		over = over | BIT
	};
	goto next_life;
done:
	skip
}

/* resume_choose(): of the slots of who is here the one with the largest number that is whole. */
inline choose()
{
	d_step {
		base = 0;
		base_line = 0;
		c = 0;
		do
		:: c < NODES * 2 ->
			if
			:: !is_there[c] || !(present & 1 << c / 2) || number[c] < base ||
			   (number[c] == base && line[c] <= base_line)
			:: else ->
				count = 0;
				d = 0;
				do
				:: d < NODES ->
#ifdef NO_LINE
					count = count + (present >> d & 1 &&
					                 ((is_there[SLOT(d, 0)] &&
					                   number[SLOT(d, 0)] == number[c]) ||
					                  (is_there[SLOT(d, 1)] &&
					                   number[SLOT(d, 1)] == number[c])) -> 1 : 0);
#else
					count = count + (present >> d & 1 &&
					                 (HAS(d, 0, number[c], line[c]) ||
					                  HAS(d, 1, number[c], line[c])) -> 1 : 0);
#endif
					d++
				:: else -> break
				od;
				if
#ifdef COPIES
				:: count >= 1 -> base = number[c]; base_line = line[c]
#else
				:: count == NODES -> base = number[c]; base_line = line[c]
#endif
				:: else
				fi
			fi;
			c++
		:: else -> break
		od;
		assert(base > 0 || (present & told_mask) != told_mask);
		assert(base == 0 || is_prepared[NAME(base, base_line)]);
		assert((present & told_mask) != told_mask || base >= told_number);
		/* From here on that is what they have. */
		told_number = (base > 0 -> base : told_number);
		told_mask = (base > 0 -> 0 : told_mask);
		c = 0;
		do
		:: base == 0 -> break
		:: base > 0 && c < NODES * 2 ->
			if
			:: present & 1 << c / 2 && IS_CHOSEN(c / 2, c % 2) ->
				assert(!is_spoiled[c]);
				assert(line[c] == base_line);
				told_mask = told_mask | 1 << c / 2
			:: else
			fi;
			c++
		:: else -> break
		od;
		c = 0;
		d = 0;
		count = 0
	}
}

init
{
	byte c, d, count;

	d_step {
		do
		:: c < NODES ->
			number[SLOT(c, 0)] = 1;
			is_there[SLOT(c, 0)] = true;
			c++
		:: else -> break
		od;
		c = 0;
		is_prepared[NAME(1, 0)] = true;
		told_number = 1;
		told_mask = ALL
	};
	atomic {
		run node(0);
		run node(1);
		run node(2)
	};
	do
	:: life > LIVES -> break
	:: life <= LIVES ->
		atomic {
			present = ALL;
#ifdef COPIES
			if
			:: true
			:: present = 1
			:: present = 3
			:: present = 6
			fi;
#endif
			choose();
			if
			:: base == 0 -> present = ALL; choose() /* refused: the others are fetched */
			:: else
			fi;
			dead = 0;
			over = 0;
			c = 1;
			do
			:: c <= COMMITS ->
				prepared[c] = 0;
				committed[c] = 0;
				c++
			:: else -> break
			od;
			c = 0;
			life++
		};
		if
		:: life > LIVES
		:: life <= LIVES && over == present
		fi
	od
}
