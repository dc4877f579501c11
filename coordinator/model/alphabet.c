/* Needed while a vocabulary is loaded and to look up whole words; everything else works on bytes.
 */
#include "coordinator/model/alphabet.h"

/* Bytes that are printable characters of Latin-1 stand for themselves; the other 68, in rising
 * order, are U+0100 to U+0143. */
static int is_own_character(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

size_t alphabet_of_byte(unsigned char byte, char out[2])
{
    unsigned c = byte;

    if (!is_own_character(c))
        c = 0x100 + (c <= 0x20 ? c : c <= 0xA0 ? c - 0x7F + 33 : 67);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

/* Code point to byte; -1: not in the alphabet. */
static int from_alphabet(unsigned c)
{
    if (c >= 0x100 && c <= 0x143) {
        c -= 0x100;
        return (int)(c <= 0x20 ? c : c < 67 ? c - 33 + 0x7F : 0xAD);
    }
    return c < 0x100 && is_own_character(c) ? (int)c : -1;
}

uint32_t alphabet_to_bytes(const char *text, uint32_t n, char *out)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)text[i];
        int byte = -1;

        if (b >= 0xC2 && b <= 0xC5 && i + 1 < n && ((unsigned char)text[i + 1] & 0xC0) == 0x80)
            byte = from_alphabet((b & 31u) << 6 | ((unsigned char)text[i + 1] & 63u));
        out[k++] = byte < 0 ? (char)b : (char)byte;
        i += byte >= 0;
    }
    return k;
}
