/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: the only place where the time of a large model goes, so OpenBLAS does them. */
#include <cblas.h>
#include <string.h>

#include "examples/gpt/layers.h"
#include "examples/gpt/vector.h"

/* out[i] = bias in every row. */
static void fill_rows(uint64_t rows, uint64_t count, const float *bias, float *out)
{
	for (uint64_t row = 0; row < rows; row++)
		memcpy(out + row * count, bias, count * sizeof(*out));
}

/* sums[j] += sum over the rows of x[row][j]. */
GPT_CLONES static void add_columns(uint64_t rows, uint64_t count, const float *x, float *sums)
{
	for (uint64_t row = 0; row < rows; row++)
		for (uint64_t j = 0; j < count; j++)
			sums[j] += x[row * count + j];
}

/* ret_out = x + y, element by element. ret_out may be x or y. */
GPT_CLONES void gpt_add(uint64_t count, const float *x, const float *y, float *ret_out)
{
	for (uint64_t i = 0; i < count; i++)
		ret_out[i] = x[i] + y[i];
}

/* in: (N, C). weight: (O, C). bias: (O,), NULL for none. ret_out: (N, O). */
void gpt_linear_forward(uint64_t rows, uint64_t inputs, uint64_t outputs, const float *in,
                        const float *weight, const float *bias, float *ret_out)
{
	int n = (int)rows, c = (int)inputs, o = (int)outputs;

	if (bias)
		fill_rows(rows, outputs, bias, ret_out);
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, o, c, 1.0f, in, c, weight, c,
	            bias ? 1.0f : 0.0f, ret_out, o);
}

/* dout: (N, O). ret_din: (N, C), NULL when not wanted. dweight: (O, C). dbias: (O,), NULL for
 * none. */
void gpt_linear_backward(uint64_t rows, uint64_t inputs, uint64_t outputs, const float *in,
                         const float *weight, const float *dout, bool keep, float *ret_din,
                         float *dweight, float *dbias)
{
	int n = (int)rows, c = (int)inputs, o = (int)outputs;

	if (ret_din)
		cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, c, o, 1.0f, dout, o,
		            weight, c, 0.0f, ret_din, c);
	cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, o, c, n, 1.0f, dout, o, in, c,
	            keep ? 1.0f : 0.0f, dweight, c);
	if (!dbias)
		return;
	if (!keep)
		memset(dbias, 0, outputs * sizeof(*dbias));
	add_columns(rows, outputs, dout, dbias);
}
