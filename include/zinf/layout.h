/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file layout.h Sizes and offsets of the public structures, for bindings in other languages. Part
 * of zinf.h, which includes it. A binding compares its own declarations with this list when it
 * loads the library.
 */
#ifndef ZINF_LAYOUT_H
#define ZINF_LAYOUT_H

#ifdef __cplusplus
#pragma GCC system_header /* as zinf.h */
#endif

#include <zinf/zinf.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A field of a public structure, or a whole structure. */
struct zinf_layout_field {
	const char *structure; /**< such as "zinf_options" */
	const char *field;     /**< such as "rank"; "": the whole structure */
	uint32_t offset_bytes; /**< from the beginning of the structure */
	uint32_t bytes;        /**< size; of an array that of all elements */
};

/**
 * All fields of all structures in zinf's headers, reserved ones included, as the loaded library was
 * compiled. Each structure begins with its own entry; its fields follow in order. @ret_count:
 * number of entries; may be NULL. Any thread; needs no connection.
 * Return: (*ret_count,) constant entries. They stay valid while the library is loaded.
 */
ZINF_API const struct zinf_layout_field *zinf_layout(uint32_t *ret_count);

#ifdef __cplusplus
}
#endif

#endif
