// <metal_matrix>: floatCxR and halfCxR, C columns of R rows each (MSL specification 2.3, 6.7).
#pragma once

#include "geometric_functions.h"

namespace metal {

template <class T, int Cols, int Rows>
struct matrix {
  typedef vec<T, Rows> column;
  column columns[Cols];

  matrix() = default;
  matrix(const matrix &) = default;
  matrix &operator=(const matrix &) = default;
  // The dialect's own copies take no object in constant memory.
  matrix(const constant matrix &o) {
    for (int c = 0; c < Cols; ++c) columns[c] = o.columns[c];
  }
  matrix &operator=(const constant matrix &o) { return *this = matrix(o); }
  // The diagonal matrix.
  explicit matrix(T diagonal) {
    for (int c = 0; c < Cols; ++c) {
      columns[c] = column(T(0));
      if (c < Rows) columns[c][c] = diagonal;
    }
  }
  // All columns, or all elements column by column.
  template <class A, class B, class... Rest>
  matrix(A first, B second, Rest... rest) {
    constexpr int given = 2 + sizeof...(Rest);
    if constexpr (msl_is_vector<A>) {
      static_assert(given == Cols, "a matrix is made from all its columns");
      column list[] = {column(first), column(second), column(rest)...};
      for (int c = 0; c < Cols; ++c) columns[c] = list[c];
    } else {
      static_assert(given == Cols * Rows, "a matrix is made from all its elements, column by column");
      T list[] = {T(first), T(second), T(rest)...};
      for (int i = 0; i < given; ++i) columns[i / Rows][i % Rows] = list[i];
    }
  }
  // Without an address space: for matrices in thread, device and threadgroup memory alike.
  column &operator[](int c) { return columns[c]; }
  column operator[](int c) const { return columns[c]; }
  column operator[](int c) const constant { return columns[c]; }
};

#define MSL_X(T)                                                                                  \
  typedef matrix<T, 2, 2> T##2x2; typedef matrix<T, 2, 3> T##2x3; typedef matrix<T, 2, 4> T##2x4; \
  typedef matrix<T, 3, 2> T##3x2; typedef matrix<T, 3, 3> T##3x3; typedef matrix<T, 3, 4> T##3x4; \
  typedef matrix<T, 4, 2> T##4x2; typedef matrix<T, 4, 3> T##4x3; typedef matrix<T, 4, 4> T##4x4;
MSL_X(float)
MSL_X(half)
#undef MSL_X

#define MSL_X(OP)                                                            \
  template <class T, int C, int R>                                           \
  inline matrix<T, C, R> operator OP(matrix<T, C, R> a, matrix<T, C, R> b) { \
    for (int c = 0; c < C; ++c) a.columns[c] = a.columns[c] OP b.columns[c]; \
    return a;                                                                \
  }
MSL_X(+) MSL_X(-)
#undef MSL_X
template <class T, int C, int R>
inline matrix<T, C, R> operator*(matrix<T, C, R> m, typename type_identity<T>::type s) {
  for (int c = 0; c < C; ++c) m.columns[c] = m.columns[c] * s;
  return m;
}
template <class T, int C, int R>
inline matrix<T, C, R> operator*(typename type_identity<T>::type s, matrix<T, C, R> m) {
  return m * s;
}
template <class T, int C, int R>
inline vec<T, R> operator*(matrix<T, C, R> m, vec<T, C> v) {
  vec<T, R> r = m.columns[0] * v[0];
  for (int c = 1; c < C; ++c) r = r + m.columns[c] * v[c];
  return r;
}
template <class T, int C, int R>
inline vec<T, C> operator*(vec<T, R> v, matrix<T, C, R> m) {
  vec<T, C> r;
  for (int c = 0; c < C; ++c) r[c] = dot(v, m.columns[c]);
  return r;
}
template <class T, int C, int K, int R>
inline matrix<T, C, R> operator*(matrix<T, K, R> a, matrix<T, C, K> b) {
  matrix<T, C, R> r;
  for (int c = 0; c < C; ++c) r.columns[c] = a * b.columns[c];
  return r;
}
template <class T, int C, int R>
inline matrix<T, R, C> transpose(matrix<T, C, R> m) {
  matrix<T, R, C> r;
  for (int c = 0; c < C; ++c)
    for (int i = 0; i < R; ++i) r.columns[i][c] = m.columns[c][i];
  return r;
}
template <class T>
inline T determinant(matrix<T, 2, 2> m) {
  return m.columns[0].x * m.columns[1].y - m.columns[1].x * m.columns[0].y;
}
template <class T>
inline T determinant(matrix<T, 3, 3> m) {
  return dot(m.columns[0], cross(m.columns[1], m.columns[2]));
}
// Along the first row.
template <class T>
inline T determinant(matrix<T, 4, 4> m) {
  T sum = T(0);
  for (int c = 0; c < 4; ++c) {
    matrix<T, 3, 3> minor;
    for (int k = 0, to = 0; k < 4; ++k)
      if (k != c) minor.columns[to++] = m.columns[k].yzw;
    sum = sum + (c % 2 ? -m.columns[c].x : m.columns[c].x) * determinant(minor);
  }
  return sum;
}

}  // namespace metal
