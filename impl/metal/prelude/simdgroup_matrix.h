// <metal_simdgroup_matrix>: an 8 x 8 matrix spread over the 32 lanes of a simdgroup (MSL specification 6.7).
//
// Which two elements a lane holds is not in Apple's specification, yet kernels rely on it through thread_elements().
// Sources, which agree: MLX's steel attention (mlx/backend/metal/kernels/steel/attn/mma.h, BaseMMAFrag::get_coord) and
// the table in Philip Turner's metal-flash-attention, after US patent 11256518. With the lane's bits l4 l3 l2 l1 l0 the
// row is l4 l2 l1, and the columns are l3 l0 0 and l3 l0 1.
#pragma once

#include "simdgroup.h"

namespace metal {

template <class T, int Cols, int Rows = Cols>
struct simdgroup_matrix {
  static_assert(Cols == 8 && Rows == 8, "Metal has simdgroup matrices of 8 x 8 only");
  static_assert(is_floating_point<T>::value, "Metal has simdgroup matrices of float, half and bfloat only");

  simdgroup_matrix() = default;
  // The diagonal matrix; make_filled_simdgroup_matrix fills.
  explicit simdgroup_matrix(T diagonal);

  thread vec<T, 2> &thread_elements() thread { return held; }
  const thread vec<T, 2> &thread_elements() const thread { return held; }

 private:
  vec<T, 2> held;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

// The place of this lane's two elements: (row, column) and (row, column + 1).
inline uint msl_matrix_row(uint lane) { return (lane >> 2 & 4) | (lane >> 1 & 3); }
inline uint msl_matrix_column(uint lane) { return (lane >> 1 & 4) | (lane << 1 & 2); }
inline uint msl_matrix_lane(uint row, uint column) {
  return (row & 4) << 2 | (column & 4) << 1 | (row & 3) << 1 | (column >> 1 & 1);
}

template <class T, int Cols, int Rows>
simdgroup_matrix<T, Cols, Rows>::simdgroup_matrix(T diagonal) {
  uint lane = msl_rt_lane(), row = msl_matrix_row(lane), column = msl_matrix_column(lane);
  held = vec<T, 2>{row == column ? diagonal : T(0), row == column + 1 ? diagonal : T(0)};
}
template <class T, int Cols, int Rows = Cols>
inline simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Cols, Rows> m;
  m.thread_elements() = vec<T, 2>{value, value};
  return m;
}
template <class T, int Cols, int Rows = Cols>
inline simdgroup_matrix<T, Cols, Rows> make_diagonal_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, Cols, Rows>(value);
}

// Element (row, column) lies at origin.x + column + (origin.y + row) * elements_per_row. With `transpose`, row and
// column change places and the origin does not: Apple's compiler (32023.883) swaps the components of origin and stride
// together, as a public listing shows (kernel_simdgroup_matrix_transposed_and_offset_block of metal2vulkan).
inline ulong msl_matrix_place(uint row, uint column, ulong elements_per_row, ulong2 origin, bool transpose) {
  ulong down = transpose ? column : row, right = transpose ? row : column;
  return (origin.y + down) * elements_per_row + origin.x + right;
}
#define MSL_MATRIX_LOAD(SPACE)                                                                       \
  template <class T, int Cols, int Rows>                                                             \
  inline void simdgroup_load(thread simdgroup_matrix<T, Cols, Rows> &d, const SPACE T *src,          \
                             ulong elements_per_row = Cols, ulong2 matrix_origin = ulong2(0),        \
                             bool transpose_matrix = false, MSL_HERE) {                              \
    msl_matrix_meets(site);                                                                          \
    uint row = msl_matrix_row(msl_rt_lane()), column = msl_matrix_column(msl_rt_lane());             \
    for (uint i = 0; i < 2; ++i)                                                                     \
      d.thread_elements()[i] =                                                                       \
          src[msl_matrix_place(row, column + i, elements_per_row, matrix_origin, transpose_matrix)]; \
  }
#define MSL_MATRIX_STORE(SPACE)                                                                               \
  template <class T, int Cols, int Rows>                                                                      \
  inline void simdgroup_store(simdgroup_matrix<T, Cols, Rows> a, SPACE T *dst, ulong elements_per_row = Cols, \
                              ulong2 matrix_origin = ulong2(0), bool transpose_matrix = false, MSL_HERE) {    \
    uint row = msl_matrix_row(msl_rt_lane()), column = msl_matrix_column(msl_rt_lane());                      \
    for (uint i = 0; i < 2; ++i)                                                                              \
      dst[msl_matrix_place(row, column + i, elements_per_row, matrix_origin, transpose_matrix)] =             \
          a.thread_elements()[i];                                                                             \
    msl_matrix_meets(site);                                                                                   \
  }
// Loads, stores and products belong to the whole simdgroup: a lane that is missing is reported.
inline void msl_matrix_meets(msl_site site) {
  if (msl_active(site) != 0xffffffffu) msl_rt_event(MSL_READ_OF_INACTIVE_LANE, site.number);
}
MSL_MATRIX_LOAD(device)
MSL_MATRIX_LOAD(constant)
MSL_MATRIX_LOAD(threadgroup)
MSL_MATRIX_STORE(device)
MSL_MATRIX_STORE(threadgroup)
#undef MSL_MATRIX_LOAD
#undef MSL_MATRIX_STORE

// One lane's share of both factors, so that a product needs one meeting.
template <class A, class B>
struct msl_factors {
  vec<A, 2> a;
  vec<B, 2> b;
};

// d = a * b + c. Products are summed in float and rounded once to the type of d.
template <class D, class A, class B, class C, int Cols, int Rows, int K>
inline void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, Cols, Rows> &d, simdgroup_matrix<A, K, Rows> a,
                                          simdgroup_matrix<B, Cols, K> b, simdgroup_matrix<C, Cols, Rows> c,
                                          MSL_HERE) {
  uint row = msl_matrix_row(msl_rt_lane()), column = msl_matrix_column(msl_rt_lane());
  vec<float, 2> sum = msl_piece<float>(c.thread_elements());
#ifdef __NVPTX__
  uint here = msl_active(site);
  for (uint k = 0; k < 8; ++k) {
    float factor = (float)msl_shuffle(here, a.thread_elements(), msl_matrix_lane(row, k))[k & 1];
    vec<float, 2> line = msl_piece<float>(msl_shuffle(here, b.thread_elements(), msl_matrix_lane(k, column)));
    sum = sum + factor * line;
  }
#else
  typedef msl_factors<A, B> Factors;
  Factors mine;
  mine.a = a.thread_elements();
  mine.b = b.thread_elements();
  thread msl_meeting *meeting = msl_rt_meet(&mine, sizeof(Factors), site.number);
  if (meeting->active != 0xffffffffu) msl_rt_event(MSL_READ_OF_INACTIVE_LANE, site.number);
  const thread Factors *all = (const thread Factors *)meeting->values;
  for (uint k = 0; k < 8; ++k) {
    float factor = (float)all[msl_matrix_lane(row, k)].a[k & 1];
    vec<float, 2> line = msl_piece<float>(all[msl_matrix_lane(k, column)].b);
    sum = sum + factor * line;
  }
#endif
  d.thread_elements() = msl_piece<D>(sum);
}
template <class D, class A, class B, int Cols, int Rows, int K>
inline void simdgroup_multiply(thread simdgroup_matrix<D, Cols, Rows> &d, simdgroup_matrix<A, K, Rows> a,
                               simdgroup_matrix<B, Cols, K> b, MSL_HERE) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, Cols, Rows>(D(0)), site);
}

}  // namespace metal
