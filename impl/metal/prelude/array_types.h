// <metal_array> and <metal_uniform>: an array with value semantics, and the promise that a value is the same for all
// threads, which changes nothing here.
#pragma once

#include "type_traits.h"

namespace metal {

template <class T, size_t N>
struct array {
  T msl_elements[N];
  T &operator[](size_t i) { return msl_elements[i]; }
  T operator[](size_t i) const { return msl_elements[i]; }
  T operator[](size_t i) const constant { return msl_elements[i]; }
  constexpr size_t size() const { return N; }
};

template <class T>
using uniform = T;
template <class T>
constexpr T make_uniform(T value) {
  return value;
}

}  // namespace metal
