// Vector constructors. clang takes `float4 v`, `(float4)s` and swizzles as they are, but not `float4(a, b)` with more
// than one argument nor `float4(half4)`. So the names of the vector types are macros as well when a parenthesis follows
// (a macro with parameters is left alone elsewhere). Aliases of vectors and `vec<T, N>(...)` cannot be macros of the
// prelude: vector_syntax.py rewrites those to msl_make before clang sees them.
#pragma once

#include "vector_types.h"

namespace metal {

// The value as element type E. half and bfloat meet in float only: clang refuses the direct conversion.
template <class E, class T>
constexpr E msl_convert_element(T value) {
  if constexpr ((is_same<E, half>::value && is_same<T, bfloat>::value) ||
                (is_same<E, bfloat>::value && is_same<T, half>::value))
    return (E)(float)value;
  else
    return (E)value;
}

// A constructor's argument with elements converted to E; scalars stay scalars, vectors stay vectors.
template <class E, class A>
constexpr auto msl_piece(A a) {
  if constexpr (!msl_is_vector<A>)
    return msl_convert_element<E>(a);
  else if constexpr (is_same<msl_element<A>, E>::value)
    return a;
  else if constexpr (is_same<msl_element<A>, bool>::value)
    return msl_from_bools<vec<E, msl_shape<A>::size>>(a);
  else if constexpr ((is_same<E, half>::value && is_same<msl_element<A>, bfloat>::value) ||
                     (is_same<E, bfloat>::value && is_same<msl_element<A>, half>::value))
    return msl_piece<E>(__builtin_convertvector(a, vec<float, msl_shape<A>::size>));
  else
    return __builtin_convertvector(a, vec<E, msl_shape<A>::size>);
}

// V(a...) for any V; what the macros below stand for.
template <class V>
constexpr V msl_make() {
  return V();
}
template <class V, class A>
constexpr V msl_make(A a) {
  using E = msl_element<V>;
  if constexpr (!msl_is_vector<V> || is_same<E, bool>::value) {
    if constexpr (msl_shape<V>::size == 1) return msl_convert_element<V>(a);
    else return V(a);
  } else if constexpr (msl_is_vector<A>) {
    if constexpr (msl_shape<A>::size == msl_shape<V>::size) return msl_piece<E>(a);
    else static_assert(msl_never<A>, "a vector is made from one vector of another size: pick components, such as v.xy");
  } else if constexpr (is_arithmetic<A>::value || __is_enum(A)) {
    return (V)msl_convert_element<E>(a);
  } else {
    return (V)a;
  }
}
template <class V, class A, class B, class... Rest>
constexpr V msl_make(A a, B b, Rest... rest) {
  using E = msl_element<V>;
  if constexpr (!msl_is_vector<V> || is_same<E, bool>::value) {
    return V(a, b, rest...);
  } else {
    constexpr int given = (msl_shape<A>::size + msl_shape<B>::size) + (0 + ... + msl_shape<Rest>::size);
    if constexpr (given == msl_shape<V>::size) return V{msl_piece<E>(a), msl_piece<E>(b), msl_piece<E>(rest)...};
    else static_assert(msl_never<A>, "the constructor of a vector has too few or too many components");
  }
}

}  // namespace metal

// Put between a type's name and a parenthesis where a declarator follows, as in `float4 (&rows)[2]`: no macro then.
#define MSL_DECLARES

#define char2(...) msl_make<char2>(__VA_ARGS__)
#define char3(...) msl_make<char3>(__VA_ARGS__)
#define char4(...) msl_make<char4>(__VA_ARGS__)
#define uchar2(...) msl_make<uchar2>(__VA_ARGS__)
#define uchar3(...) msl_make<uchar3>(__VA_ARGS__)
#define uchar4(...) msl_make<uchar4>(__VA_ARGS__)
#define short2(...) msl_make<short2>(__VA_ARGS__)
#define short3(...) msl_make<short3>(__VA_ARGS__)
#define short4(...) msl_make<short4>(__VA_ARGS__)
#define ushort2(...) msl_make<ushort2>(__VA_ARGS__)
#define ushort3(...) msl_make<ushort3>(__VA_ARGS__)
#define ushort4(...) msl_make<ushort4>(__VA_ARGS__)
#define int2(...) msl_make<int2>(__VA_ARGS__)
#define int3(...) msl_make<int3>(__VA_ARGS__)
#define int4(...) msl_make<int4>(__VA_ARGS__)
#define uint2(...) msl_make<uint2>(__VA_ARGS__)
#define uint3(...) msl_make<uint3>(__VA_ARGS__)
#define uint4(...) msl_make<uint4>(__VA_ARGS__)
#define long2(...) msl_make<long2>(__VA_ARGS__)
#define long3(...) msl_make<long3>(__VA_ARGS__)
#define long4(...) msl_make<long4>(__VA_ARGS__)
#define ulong2(...) msl_make<ulong2>(__VA_ARGS__)
#define ulong3(...) msl_make<ulong3>(__VA_ARGS__)
#define ulong4(...) msl_make<ulong4>(__VA_ARGS__)
#define float2(...) msl_make<float2>(__VA_ARGS__)
#define float3(...) msl_make<float3>(__VA_ARGS__)
#define float4(...) msl_make<float4>(__VA_ARGS__)
#define half2(...) msl_make<half2>(__VA_ARGS__)
#define half3(...) msl_make<half3>(__VA_ARGS__)
#define half4(...) msl_make<half4>(__VA_ARGS__)
#define bfloat2(...) msl_make<bfloat2>(__VA_ARGS__)
#define bfloat3(...) msl_make<bfloat3>(__VA_ARGS__)
#define bfloat4(...) msl_make<bfloat4>(__VA_ARGS__)
// `bfloat(half)` and `half(bfloat)` are refused by clang as well.
#define half(...) msl_make<half>(__VA_ARGS__)
#define float16_t(...) msl_make<float16_t>(__VA_ARGS__)
#define bfloat(...) msl_make<bfloat>(__VA_ARGS__)
#define bfloat16_t(...) msl_make<bfloat16_t>(__VA_ARGS__)
