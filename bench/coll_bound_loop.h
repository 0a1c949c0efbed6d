/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams of coll_bound.c with vectors of one width; included once for each. Before it:
 * LOOP_TARGET (the instruction set), LOOP_NAME(x) (x with a suffix of its own), and of the vectors
 * LOOP_VECTOR, LOOP_VECTOR_BYTES, LOOP_LOAD, LOOP_ADD, LOOP_STORE, LOOP_STREAM.
 */

#define LOOP_INLINE __attribute__((target(LOOP_TARGET), always_inline)) static inline

LOOP_INLINE void LOOP_NAME(loop)(const struct streams *streams, uint64_t begin, uint64_t end,
                                 unsigned sources, unsigned targets, bool is_streaming,
                                 bool is_ahead)
{
	struct streams own = *streams; /* in registers */

	for (uint64_t line = begin; line < end; line += LINE_BYTES) {
		for (unsigned s = 0; is_ahead && s < sources; s++)
			_mm_prefetch(own.sources[s] + line + AHEAD_BYTES, _MM_HINT_T0);
		for (uint64_t i = line; i < line + LINE_BYTES; i += LOOP_VECTOR_BYTES) {
			LOOP_VECTOR x = LOOP_LOAD((const float *)(own.sources[0] + i));

			for (unsigned s = 1; s < sources; s++)
				x = LOOP_ADD(x, LOOP_LOAD((const float *)(own.sources[s] + i)));
			for (unsigned t = 0; t < targets; t++) {
				if (is_streaming)
					LOOP_STREAM((float *)(own.targets[t] + i), x);
				else
					LOOP_STORE((float *)(own.targets[t] + i), x);
			}
		}
	}
	_mm_sfence();
}

LOOP_INLINE void LOOP_NAME(loop_way)(const struct streams *streams, uint64_t begin, uint64_t end,
                                     unsigned sources, unsigned targets, const struct way *way)
{
	if (way->is_streaming && way->is_ahead)
		LOOP_NAME(loop)(streams, begin, end, sources, targets, true, true);
	else if (way->is_streaming)
		LOOP_NAME(loop)(streams, begin, end, sources, targets, true, false);
	else if (way->is_ahead)
		LOOP_NAME(loop)(streams, begin, end, sources, targets, false, true);
	else
		LOOP_NAME(loop)(streams, begin, end, sources, targets, false, false);
}

/* Mixes of 2 and 4 ranks are loops of their own. */
__attribute__((target(LOOP_TARGET))) static void LOOP_NAME(run)(const struct streams *streams,
                                                                uint64_t begin, uint64_t end,
                                                                unsigned sources, unsigned targets,
                                                                const struct way *way)
{
	if (sources == 1 && targets == 1)
		LOOP_NAME(loop_way)(streams, begin, end, 1, 1, way);
	else if (sources == 2 && targets == 1)
		LOOP_NAME(loop_way)(streams, begin, end, 2, 1, way);
	else if (sources == 2 && targets == 2)
		LOOP_NAME(loop_way)(streams, begin, end, 2, 2, way);
	else if (sources == 1 && targets == 3)
		LOOP_NAME(loop_way)(streams, begin, end, 1, 3, way);
	else if (sources == 4 && targets == 1)
		LOOP_NAME(loop_way)(streams, begin, end, 4, 1, way);
	else if (sources == 4 && targets == 4)
		LOOP_NAME(loop_way)(streams, begin, end, 4, 4, way);
	else
		LOOP_NAME(loop_way)(streams, begin, end, sources, targets, way);
}

#undef LOOP_INLINE
#undef LOOP_TARGET
#undef LOOP_NAME
#undef LOOP_VECTOR
#undef LOOP_VECTOR_BYTES
#undef LOOP_LOAD
#undef LOOP_ADD
#undef LOOP_STORE
#undef LOOP_STREAM
