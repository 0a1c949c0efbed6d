/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of tensors, drawn from their place. Tests fill millions of them, so the compiler
 * optimizes this file, unlike test files.
 */
#pragma once

#include <stdint.h>

/**
 * test_noise() - bits that look random.
 * @x: what they are drawn from.
 *
 * Return: the bits, the same for the same @x.
 */
uint64_t test_noise(uint64_t x);

/**
 * test_value() - one value of a tensor.
 * @what: number of the tensor.
 * @index: index of the value in it.
 *
 * Return: a number in [-1, 1), of any magnitude.
 */
float test_value(uint64_t what, uint64_t index);

/**
 * test_values() - the first values of a tensor.
 * @values: (@count,) where they are written.
 * @what: number of the tensor.
 * @count: how many, in elements.
 */
void test_values(float *values, uint64_t what, uint64_t count);
