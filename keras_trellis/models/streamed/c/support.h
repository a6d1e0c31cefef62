/* What the generated pass is made of. C99 and libm; nothing is allocated. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* exp to 2e-7 of its value: a polynomial on half a power of two to either side, which compilers
   turn into vector instructions where expf is a call. */
static inline float fast_exp(float x) {
  const float limit = 87.0f;
  x = x > limit ? limit : (x < -limit ? -limit : x);
  const float powers = x * 1.44269504f;
  const int32_t whole = (int32_t)(powers + (powers < 0 ? -0.5f : 0.5f));
  /* ln 2 in two parts, so that the rest is exact. */
  const float rest = (x - (float)whole * 0.693359375f) + (float)whole * 2.12194440e-4f;
  float series = 1.0f / 5040;
  series = series * rest + 1.0f / 720;
  series = series * rest + 1.0f / 120;
  series = series * rest + 1.0f / 24;
  series = series * rest + 1.0f / 6;
  series = series * rest + 0.5f;
  series = series * rest + 1.0f;
  series = series * rest + 1.0f;
  const int32_t bits = (whole + 127) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return series * power;
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

static inline float fast_tanh(float x) {
  /* Near zero the difference below would lose digits. */
  const float square = x * x;
  const float small = x * (1.0f - square * (1.0f / 3 - square * (2.0f / 15)));
  const float large = 2.0f / (1.0f + fast_exp(-2.0f * x)) - 1.0f;
  return square < 0.0025f ? small : large;
}

/* y[rows][n] = x[rows][k] w[k][n]; the rows of x stand `stride` numbers apart. */
static inline void matmul(int rows, int k, int n, const float *x, int stride, const float *w,
                          float *y) {
  for (int row = 0; row < rows; row++, x += stride, y += n) {
    const int whole = k / 4 * 4;
    for (int j = 0; j < n; j++) y[j] = 0;
    /* Four rows of the matrix at a time: y is read and written once for them. */
    for (int i = 0; i < whole; i += 4) {
      const float a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
      const float *p = w + (size_t)i * n, *q = p + n, *r = q + n, *s = r + n;
      for (int j = 0; j < n; j++) y[j] += a * p[j] + b * q[j] + c * r[j] + d * s[j];
    }
    for (int i = whole; i < k; i++)
      for (int j = 0; j < n; j++) y[j] += x[i] * w[(size_t)i * n + j];
  }
}

/* The softmax of n numbers. */
static inline void softmax(int n, const float *x, float *y) {
  float most = x[0], sum = 0;
  for (int i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
  for (int i = 0; i < n; i++) sum += y[i] = fast_exp(x[i] - most);
  for (int i = 0; i < n; i++) y[i] /= sum;
}

/* One entry that a chunk reads or writes: of which line, where that begins in its pool, and how
   many entries after the line's oldest one. */
typedef struct {
  int32_t line, base, offset;
} entry;

static inline size_t place(entry at, const int32_t *next, const int32_t *lengths) {
  int32_t where = next[at.line] + at.offset;
  if (where >= lengths[at.line]) where -= lengths[at.line];
  return (size_t)(at.base + where);
}

static inline void read_lines(char *to, const char *pool, size_t size, const entry *entries,
                              int count, const int32_t *next, const int32_t *lengths) {
  for (int i = 0; i < count; i++)
    memcpy(to + size * i, pool + size * place(entries[i], next, lengths), size);
}

static inline void write_lines(char *pool, const char *from, size_t size, const entry *entries,
                               int count, const int32_t *next, const int32_t *lengths) {
  for (int i = 0; i < count; i++)
    memcpy(pool + size * place(entries[i], next, lengths), from + size * i, size);
}
