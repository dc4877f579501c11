/* Selection by a total order, so that every method gives the same list: the definition walks k
 * times over all values; the fast ways keep the best k, or find the k-th key digit by digit. */
#include "kernels/topk/topk.h"
#include "kernels/topk/topk_list.h"

#include "kernels/cpu.h"
#include "kernels/func/func.h"
#include "kernels/num.h"
#include "kernels/softmax/softmax.h"

enum { FEW = 128 }; /* up to here a sorted list beats selection by digits */

int32_t order_key(float v)
{
    int32_t b;

    if (v != v)
        return INT32_MIN;
    b = (int32_t)f32_bits(v + 0.0f); /* -0 becomes +0 */
    return b ^ ((b >> 31) & 0x7FFFFFFF);
}

/* rule 26: a at index i comes before b at index j */
static int before(float a, uint32_t i, float b, uint32_t j)
{
    int a_nan = a != a, b_nan = b != b;

    if (a_nan || b_nan)
        return a_nan == b_nan ? i < j : b_nan;
    return a > b || (a == b && i < j);
}

void order_topk_ref(const float *v, uint32_t n, uint32_t k, uint32_t *idx)
{
    for (uint32_t place = 0; place < k; place++) {
        int found = 0;

        for (uint32_t i = 0; i < n; i++) {
            if (place && !before(v[idx[place - 1]], idx[place - 1], v[i], i))
                continue; /* has a place already */
            if (!found || before(v[i], i, v[idx[place]], idx[place]))
                idx[place] = i;
            found = 1;
        }
    }
}

/* A later index that equals the worst never enters, so one comparison a value decides. */
void order_topk_few(const float *v, uint32_t n, uint32_t k, uint32_t *idx)
{
    for (uint32_t i = 0; i < k; i++)
        list_insert(v, i, idx, i);
    for (uint32_t i = k; k && i < n; i++)
        if (order_key(v[i]) > order_key(v[idx[k - 1]]))
            list_insert(v, i, idx, k - 1);
}

/* heap sort of idx by the order: the root is what comes last */
static void sift(const float *v, uint32_t *idx, uint32_t root, uint32_t n)
{
    for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
        uint32_t t;

        if (child + 1 < n && before(v[idx[child]], idx[child], v[idx[child + 1]], idx[child + 1]))
            child++;
        if (!before(v[idx[root]], idx[root], v[idx[child]], idx[child]))
            return;
        t = idx[root], idx[root] = idx[child], idx[child] = t;
    }
}

static void sort_by_order(const float *v, uint32_t *idx, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(v, idx, i, n);
    for (uint32_t left = n; left > 1;) {
        uint32_t t = idx[--left];

        idx[left] = idx[0], idx[0] = t;
        sift(v, idx, 0, left);
    }
}

/* The k-th largest key, 8 bits a pass from the top; *ties = how many of that key belong to the
 * first k. 0 < k <= n. */
static uint32_t kth_key(const float *v, uint32_t n, uint32_t k, uint32_t *ties)
{
    uint32_t key = 0, known = 0;

    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t count[256] = {0}, digit = 255;

        for (uint32_t i = 0; i < n; i++) {
            uint32_t u = (uint32_t)order_key(v[i]) ^ 0x80000000u; /* unsigned order */

            if ((u & known) == key)
                count[u >> shift & 255]++;
        }
        while (k > count[digit])
            k -= count[digit--];
        key |= digit << shift;
        known |= 255u << shift;
    }
    *ties = k;
    return key;
}

void order_topk_many(const float *v, uint32_t n, uint32_t k, uint32_t *idx)
{
    uint32_t ties, key, found = 0;

    if (!k)
        return;
    key = kth_key(v, n, k, &ties);
    for (uint32_t i = 0; i < n && found < k; i++) {
        uint32_t u = (uint32_t)order_key(v[i]) ^ 0x80000000u;

        if (u > key || (u == key && ties)) {
            ties -= u == key;
            idx[found++] = i;
        }
    }
    sort_by_order(v, idx, k);
}

void order_topk(const float *v, uint32_t n, uint32_t k, uint32_t *idx)
{
    if (k > FEW)
        order_topk_many(v, n, k, idx);
    else if (cpu_level() >= CPU_AVX2)
        order_topk_avx2(v, n, k, idx);
    else
        order_topk_few(v, n, k, idx);
}

void router_weights(float *w, uint32_t k, int normalise, float floor, float plus, float scale)
{
    if (normalise) {
        float t = 0.0f;

        for (uint32_t p = 0; p < k; p++)
            t += w[p];
        t = t > floor ? t : floor;
        if (plus != 0.0f)
            t += plus;
        for (uint32_t p = 0; p < k; p++)
            w[p] = w[p] / t;
    }
    if (scale != 0.0f && scale != 1.0f)
        for (uint32_t p = 0; p < k; p++)
            w[p] *= scale;
    for (uint32_t p = 0; p < k; p++)
        w[p] = f32_canon(w[p]);
}

void router_softmax(const float *logits, uint32_t n, uint32_t k, int normalise, float floor,
                    float scale, float *probs, uint32_t *idx, float *w)
{
    softmax(logits, probs, n);
    order_topk(probs, n, k, idx);
    for (uint32_t p = 0; p < k; p++)
        w[p] = probs[idx[p]];
    router_weights(w, k, normalise, floor, 0.0f, scale);
}

void router_sigmoid(const float *logits, const float *bias, uint32_t n, uint32_t k, int normalise,
                    float floor, float scale, float *scores, float *select, uint32_t *idx, float *w)
{
    vec_sigmoid(logits, scores, n);
    for (uint32_t i = 0; i < n; i++)
        select[i] = bias ? f32_canon(scores[i] + bias[i]) : scores[i];
    order_topk(select, n, k, idx);
    for (uint32_t p = 0; p < k; p++)
        w[p] = scores[idx[p]];
    router_weights(w, k, normalise, floor, 0.0f, scale);
}
