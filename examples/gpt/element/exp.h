/* SPDX-License-Identifier: Apache-2.0 */
/* exp(), written out: it can be vectorised, and its bits depend on no library. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "examples/gpt/element/element.h"

/* e^x. Against f64: |err| <= 3e-7 rel. on [-87, 88], beyond which x is taken as that bound; NaN
 * stays NaN. x = n ln 2 + r, |r| <= ln(2)/2; Taylor's polynomial of degree 7, whose rest is below
 * 6e-9. */
GPT_ELEMENT float gpt_exp(float x)
{
	const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
	float shifted, n, r, y, scale;
	int32_t bits;

	x = x < -87.0f ? -87.0f : x;
	x = x > 88.0f ? 88.0f : x;
	shifted = x * 1.44269504f + magic;
	n = shifted - magic;
	r = x - n * 0.693359375f; /* ln 2 in two parts; the product with the first one is exact */
	r = r - n * -2.12194440e-4f;
	y = 1.0f / 5040.0f;
	y = y * r + 1.0f / 720.0f;
	y = y * r + 1.0f / 120.0f;
	y = y * r + 1.0f / 24.0f;
	y = y * r + 1.0f / 6.0f;
	y = y * r + 0.5f;
	y = y * r + 1.0f;
	y = y * r + 1.0f;
	memcpy(&bits, &shifted, sizeof(bits));
	bits = (int32_t)((uint32_t)(bits - 0x4b400000 + 127) << 23); /* 2^n; 0x4b400000 is magic */
	memcpy(&scale, &bits, sizeof(scale));
	return y * scale;
}
