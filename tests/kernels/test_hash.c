/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: kern_hash() is XXH3 (64 bits, seed 0) on every instruction set.
 * Method: against the library header compiled plainly in this file, at every length around its
 * internal borders and at any alignment; and against published values.
 */
#include <criterion/criterion.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/hash.h"
#include "kernels/kernels.h"
#include "tests/kernels/data.h"

#define BYTES_MAX (160u << 10) /* a tile of bf16 training */

static unsigned char data[BYTES_MAX + 64];

static void check(const unsigned char *start, uint64_t bytes)
{
	uint64_t expected = XXH3_64bits(start, bytes);

	for (enum kern_isa isa = KERN_ISA_REF; isa < _KERN_ISA_COUNT; isa++)
		if (kern_isa_force(isa) == 0)
			cr_assert_eq(kern_hash(start, bytes), expected, "%s, %llu bytes",
			             kern_isa_name(isa), (unsigned long long)bytes);
}

static void data_init(void)
{
	data_fill(data, sizeof data / sizeof(float), ZI_DTYPE_F32, DATA_WILD, 1);
}

Test(hash, every_short_length_agrees_with_the_library, .init = data_init)
{
	for (uint64_t bytes = 0; bytes <= 2200; bytes++)
		check(data, bytes);
}

Test(hash, tiles_agree_at_any_alignment, .init = data_init)
{
	for (unsigned offset = 0; offset < 64; offset += 7)
		for (uint64_t bytes = 4096; bytes <= BYTES_MAX; bytes += 36864 + 1)
			check(data + offset, bytes);
	check(data, BYTES_MAX);
}

Test(hash, the_empty_input_has_the_published_value)
{
	/* xxHash's sanity check: XXH3 of no bytes with seed 0. */
	cr_assert_eq(kern_hash("", 0), 0x2d06800538d394c2ull);
	cr_assert_eq(kern_hash(NULL, 0), 0x2d06800538d394c2ull);
}

Test(hash, every_flipped_bit_of_a_block_changes_the_hash, .init = data_init)
{
	uint64_t whole = kern_hash(data, 4096);

	for (unsigned bit = 0; bit < 4096 * 8; bit++) {
		data[bit / 8] ^= (unsigned char)(1u << bit % 8);
		cr_assert_neq(kern_hash(data, 4096), whole, "bit %u", bit);
		data[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	cr_assert_eq(kern_hash(data, 4096), whole);
}
