/* The lease protocol of proto/pages.h: two clients gather and release one unit, while the daemon evicts it, gives
 * its memory to somebody else, loads it again, and updates it.
 *
 * The processes interleave statement by statement, so every access is sequentially consistent. The code uses seq_cst for the
 * accesses on which the proof rests (count up, look again; close the word, look at the counters) and acquire and
 * release for the others, which only order bytes before the word that announces them. The model says nothing of weaker orders.
 *
 * Evictor and updater are one process, because one thread of the daemon, its loop, is both. It evicts and updates
 * whenever it likes, also while clients wait for a newer version: more than the daemon ever does.
 *
 * Each mutation (-D…, see run) takes one precaution away, and must then fail. */

#define CLIENTS 2
#define ROUNDS	  2 /* gathers of each client */
#define UPDATES	  2
#define EVICTIONS 2

#define ABSENT	 0
#define LOADING	 1
#define RESIDENT 2
#define DRAINING 3
#define UPDATING 4

#define FOREIGN 255 /* what a slot holds whose memory serves somebody else */

/* Publications of one run stay below 8, as those between two looks of a client stay below 2^20. */
#ifdef NO_RELOAD_COUNT
#define WORD(state, reloads, slot) ((state)*16 + (slot))
#else
#define WORD(state, reloads, slot) ((state)*16 + ((reloads) & 7) * 2 + (slot))
#endif
#define STATE(word)   ((word) / 16)
#define RELOADS(word) (((word) / 2) & 7)
#define SLOT(word)    ((word)&1)

byte directory_word = WORD(RESIDENT, 0, 0);
byte directory_version = 0;
byte lease[CLIENTS] = 0;
bool is_dead[CLIENTS] = false;
/* The arena: two slots; each holds the version of the unit that is in it, or FOREIGN. */
byte arena[2] = FOREIGN;

/* What a lease promises: the bytes of the version that the client saw, for as long as it holds it. */
inline read_bytes()
{
	assert(arena[SLOT(word)] == seen)
}

/* An atomic block holds one access to shared memory and what the client then thinks about it. */
proctype client(byte me)
{
	byte word, again, seen;
	byte awaited = 0;
	byte round = 0;

	do
	:: round == ROUNDS -> break
	:: round < ROUNDS ->
		/* lease_take() */
		word = directory_word;
look:		if
		:: STATE(word) != RESIDENT -> goto miss
		:: else
		fi;
		atomic {
			seen = directory_version;
#ifndef NO_VERSION_CHECK
			if
			:: seen < awaited -> goto miss
			:: else
			fi
#endif
		};
#ifdef LOOK_BEFORE_COUNT
		again = directory_word;
		lease[me]++;
#else
		lease[me]++;
#ifdef NO_SECOND_LOOK
		again = word;
#else
		again = directory_word;
#endif
#endif
		if
		:: again != word ->
			atomic { lease[me]--; word = again; again = 0; goto look }
		:: else
		fi;

		/* Under the lease. seen was read between two looks at the same word: it is the version of the bytes. */
		atomic { again = 0; assert(seen >= awaited); read_bytes() };
		if
		:: read_bytes()
		:: atomic { is_dead[me] = true; goto dead } /* kill -9: the counter stays as it is */
		fi;
		lease[me]--;
		round++;

		/* A step: from here on the next version is wanted. */
		if
		:: awaited < UPDATES -> awaited++
		:: skip
		fi;
		goto next;

miss:		/* The daemon answers once the unit is resident and new enough; then it is looked up again. */
		(STATE(directory_word) == RESIDENT && directory_version >= awaited);
next:		atomic { word = 0; again = 0; seen = 0 } /* fewer states to tell apart */
	od;
dead:	skip
}

/* The session of a dead client ends, and its leases with it. */
#define IS_HELD(client) (lease[client] != 0 && !is_dead[client])

/* directory_close(), then a look at each counter. */
inline close_word(state)
{
	word = directory_word;
#ifdef LOOK_BEFORE_CLOSE
	is_held = IS_HELD(0);
	is_held = is_held || IS_HELD(1);
	directory_word = WORD(state, RELOADS(word), SLOT(word));
#else
	directory_word = WORD(state, RELOADS(word), SLOT(word));
	is_held = IS_HELD(0);
	is_held = is_held || IS_HELD(1);
#endif
	if
	:: is_held -> directory_word = word /* directory_restore() */
	:: else
	fi
}

/* directory_publish() */
inline publish(slot, version)
{
#ifdef WORD_BEFORE_VERSION
	directory_word = WORD(RESIDENT, RELOADS(directory_word) + 1, slot);
	directory_version = version;
#else
	directory_version = version;
	directory_word = WORD(RESIDENT, RELOADS(directory_word) + 1, slot);
#endif
}

proctype daemon()
{
	byte word, slot;
	byte version = 0;
	byte evictions = 0;
	bool is_held;

	do
	:: atomic { evictions < EVICTIONS -> evictions++; word = 0; slot = 0; is_held = false }
		close_word(DRAINING);
		if
		:: is_held
		:: else ->
			directory_word = WORD(ABSENT, RELOADS(word), 0);
			arena[SLOT(word)] = FOREIGN;
			directory_word = WORD(LOADING, RELOADS(word), 0);
			if /* it comes back to where it was, or elsewhere */
			:: slot = 0
			:: slot = 1
			fi;
			arena[slot] = version;
			publish(slot, version)
		fi
	:: atomic { version < UPDATES -> word = 0; slot = 0; is_held = false }
		close_word(UPDATING);
		if
		:: is_held
		:: else ->
			version++;
			if /* in place, or into a new slot */
			:: slot = SLOT(word)
			:: slot = 1 - SLOT(word);
				arena[SLOT(word)] = FOREIGN
			fi;
			arena[slot] = version;
			publish(slot, version)
		fi
	:: version == UPDATES -> break
	od
}

init
{
	arena[0] = 0;
	atomic {
		run daemon();
		run client(0);
		run client(1)
	}
}
