/* Scales and minima of a panel, four sub-blocks at a time; included after a256_form.h. */

/* signed bytes of each element: sub-blocks b.. b + 3, b ascending */
INLINE void panel_scales(struct panel *x, int b, vec s)
{
    for (int i = 0; i < 4; i++)
        panel_scale(x, b + i, v_right_signed(v_left(s, 24 - 8 * i), 24));
}
/* unsigned bytes of each element: sub-blocks b.. b + 3 */
INLINE void panel_mins(struct panel *x, int b, vec s)
{
    const vec bytes = v_set32(0x00FF00FF), low = v_set32(0xFFFF);
    vec even = v_and(s, bytes), odd = v_and(v_right(s, 8), bytes);

    v_store(x->mins[b / 2], v_or(v_and(even, low), v_left(odd, 16)));
    v_store(x->mins[b / 2 + 1], v_or(v_right(even, 16), v_xor(odd, v_and(odd, low))));
}
