/* The fifth bits of Q5_0 and Q5_1. */

/* bits at.. at + 3 of each element to bit 4 of its four bytes */
INLINE __m512i fifths(__m512i high, int at)
{
    const __m512i spread = _mm512_setr_epi32(
        0x00000000, 0x00000010, 0x00001000, 0x00001010, 0x00100000, 0x00100010, 0x00101000,
        0x00101010, 0x10000000, 0x10000010, 0x10001000, 0x10001010, 0x10100000, 0x10100010,
        0x10101000, 0x10101010);

    return _mm512_permutexvar_epi32(_mm512_srli_epi32(high, (unsigned)at), spread); /* four bits */
}
