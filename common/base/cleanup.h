/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope-bound ownership: a local that owns something carries _cleanup_(x_freep), starts as NULL or
 * -1, and gives its ownership away by zi_steal()/zi_steal_fd(). Floor 0.
 */
#pragma once

#include <stdlib.h>

#define _cleanup_(function) __attribute__((__cleanup__(function)))

#define zi_steal(pointer)                                    \
	({                                                   \
		__typeof__(pointer) *_zi_place = &(pointer); \
		__typeof__(pointer) _zi_value = *_zi_place;  \
		*_zi_place = NULL;                           \
		_zi_value;                                   \
	})

#define zi_steal_fd(fd)                     \
	({                                  \
		int *_zi_place = &(fd);     \
		int _zi_value = *_zi_place; \
		*_zi_place = -1;            \
		_zi_value;                  \
	})

/* Declares static inline name##p for use with _cleanup_: calls function(*place) unless NULL. */
#define ZI_DEFINE_CLEANUP(type, function)           \
	static inline void function##p(type *place) \
	{                                           \
		if (*place)                         \
			(void)function(*place);     \
	}

static inline void zi_freep(void *place)
{
	free(*(void **)place);
}

#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - __builtin_offsetof(type, member)))
#define ZI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define ZI_MIN(a, b)       ((a) < (b) ? (a) : (b))
#define ZI_MAX(a, b)       ((a) > (b) ? (a) : (b))
