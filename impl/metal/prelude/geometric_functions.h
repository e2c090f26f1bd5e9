// <metal_geometric>: functions of vectors of float, half or bfloat as a whole (MSL specification 6.6).
#pragma once

#include "math_functions.h"

namespace metal {
inline namespace msl_float {

template <class T, int N>
inline T dot(vec<T, N> x, vec<T, N> y) {
  static_assert(is_floating_point<T>::value, "dot takes vectors of floating-point values");
  T r = x[0] * y[0];
  for (int i = 1; i < N; ++i) r = r + x[i] * y[i];
  return r;
}
template <class T>
inline vec<T, 3> cross(vec<T, 3> x, vec<T, 3> y) {
  return x.yzx * y.zxy - x.zxy * y.yzx;
}
template <class T, int N>
inline T length_squared(vec<T, N> x) {
  return dot(x, x);
}
template <class T, int N>
inline T length(vec<T, N> x) {
  return sqrt(dot(x, x));
}
template <class T, int N>
inline T distance_squared(vec<T, N> x, vec<T, N> y) {
  return length_squared(x - y);
}
template <class T, int N>
inline T distance(vec<T, N> x, vec<T, N> y) {
  return length(x - y);
}
template <class T, int N>
inline vec<T, N> normalize(vec<T, N> x) {
  return x * rsqrt(dot(x, x));
}
template <class T, int N>
inline vec<T, N> faceforward(vec<T, N> n, vec<T, N> incident, vec<T, N> reference) {
  return dot(reference, incident) < T(0) ? n : -n;
}
template <class T, int N>
inline vec<T, N> reflect(vec<T, N> incident, vec<T, N> n) {
  return incident - T(2) * dot(n, incident) * n;
}
template <class T, int N>
inline vec<T, N> refract(vec<T, N> incident, vec<T, N> n, T eta) {
  T d = dot(n, incident);
  T k = T(1) - eta * eta * (T(1) - d * d);
  return k < T(0) ? vec<T, N>(T(0)) : eta * incident - (eta * d + sqrt(k)) * n;
}

}  // namespace msl_float
}  // namespace metal
