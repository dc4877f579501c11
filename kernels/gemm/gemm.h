/* Products of many vectors (a prompt, or the tokens of one expert) with weight rows: the same bits
 * as kernels/dot (ARITHMETIC.md rules 9 to 12 and 16), in a shape that opens each weight once for
 * many vectors. Who multiplies calls kernels/matmul/matmul.h, which asks here first.
 *
 * How the work is cut. A panel is one or several units of sixteen (AVX2: eight) rows, turned on
 * their side: row r is element r of every register, and four values of a row lie side by side in
 * it. So one instruction multiplies four values of every row with four bytes of a vector, no sum
 * goes across a register, and one instruction does one float step of all the rows' chains. Values
 * are unsigned in a panel (VALUES_SHIFT is added, and taken off through the sums of q).
 *
 *   for each block of vectors
 *     for each few panels' rows
 *       for each unit: open the panels, then for each tile of vectors and each panel: one unit,
 *       its complete integer sums in registers, one float step (rules 11 and 12) on sums in memory
 *
 * A panel stays in the first cache level while all tiles of a block pass over it; a tile's bytes
 * stay there while all panels pass over them. Units come in ascending order, nothing is split
 * along a row. Missing rows and vectors of the last panel and tile are the last one again, their
 * results dropped.
 *
 * What one product costs per 256 values, in multiplications of a register: 64 for the values, 8 or
 * 16 for the sub-blocks' scales, 2 (with minima 8) for the float step; 32-value types 64 + 16. On
 * a machine that does one 512-bit multiplication a cycle the other instructions are free, so that
 * this sum is the speed limit: 80% of what the multiplier could do for Q4_K and Q8_0. */
#pragma once
#include "kernels/cpu.h"
#include "kernels/dot/dot.h"

/* The blocked form of a type at a level; NULL: there is none, or it does not pay for so few rows or
 * vectors. The job is that of kernels/dot: any rows, any number of vectors, gathered or not. It
 * takes up to 300 KB of stack. */
dot_form *gemm_form(uint32_t type, enum cpu_level level, size_t n_rows, size_t n_tok);

dot_form gemm_q2_k_avx512, gemm_q3_k_avx512, gemm_q4_k_avx512, gemm_q5_k_avx512, gemm_q6_k_avx512;
dot_form gemm_iq4_xs_avx512, gemm_q4_0_avx512, gemm_q4_1_avx512, gemm_q5_0_avx512, gemm_q5_1_avx512;
dot_form gemm_q8_0_avx512, gemm_iq4_nl_avx512, gemm_mxfp4_avx512;

dot_form gemm_q2_k_avx2, gemm_q3_k_avx2, gemm_q4_k_avx2, gemm_q5_k_avx2, gemm_q6_k_avx2;
dot_form gemm_iq4_xs_avx2, gemm_q4_0_avx2, gemm_q4_1_avx2, gemm_q5_0_avx2, gemm_q5_1_avx2;
dot_form gemm_q8_0_avx2, gemm_iq4_nl_avx2, gemm_mxfp4_avx2;
