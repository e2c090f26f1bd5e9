// <metal_atomic>: relaxed atomics in device and threadgroup memory (MSL specification 6.15).
#pragma once

#include "conversions.h"
#include "threadgroup.h"

// The dialect knows these names already, as types that Metal's functions could not take.
#define atomic_int msl_atomic_int
#define atomic_uint msl_atomic_uint
#define atomic_bool msl_atomic_bool
#define atomic_float msl_atomic_float
#define atomic_ulong msl_atomic_ulong

namespace metal {

template <class T>
struct atomic {
  static_assert(is_same<T, int>::value || is_same<T, uint>::value || is_same<T, bool>::value ||
                    is_same<T, float>::value || is_same<T, ulong>::value,
                "Metal has atomics of int, uint, bool, float and ulong only");
  T msl_value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;

// Operations are relaxed, and only a fence may have another order: the others are of another type, so that
// `atomic_store_explicit(p, v, memory_order_seq_cst)` is refused.
enum memory_order { memory_order_relaxed = 0 };
enum msl_fence_order {
  memory_order_acquire = 2,
  memory_order_release = 3,
  memory_order_acq_rel = 4,
  memory_order_seq_cst = 5,
};
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
inline void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {}
inline void atomic_thread_fence(mem_flags, msl_fence_order, thread_scope = thread_scope_device) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

// The operand's type comes from the atomic alone: a literal converts.
template <class T>
using msl_operand = typename type_identity<T>::type;
// float has no atomic instructions here: its bits do.
template <class T>
using msl_atomic_bits = conditional_t<sizeof(T) == 8, ulong, conditional_t<sizeof(T) == 4, uint, uchar>>;
template <class T>
constexpr constant bool msl_counts = is_same<T, int>::value || is_same<T, uint>::value;

#define MSL_MODIFY(SPACE, NAME, WHO, BUILTIN)                                             \
  template <class T>                                                                      \
  inline T NAME(volatile SPACE atomic<T> *object, msl_operand<T> operand, memory_order) { \
    static_assert(WHO, #NAME " does not exist for this type in Metal");                   \
    return BUILTIN((volatile SPACE T *)object, operand, __ATOMIC_RELAXED);                \
  }
#define MSL_ATOMICS(SPACE)                                                                                        \
  template <class T>                                                                                              \
  inline T atomic_load_explicit(const volatile SPACE atomic<T> *object, memory_order) {                           \
    using B = msl_atomic_bits<T>;                                                                                 \
    return as_type<T>(__atomic_load_n((const volatile SPACE B *)object, __ATOMIC_RELAXED));                       \
  }                                                                                                               \
  template <class T>                                                                                              \
  inline void atomic_store_explicit(volatile SPACE atomic<T> *object, msl_operand<T> desired, memory_order) {     \
    using B = msl_atomic_bits<T>;                                                                                 \
    __atomic_store_n((volatile SPACE B *)object, as_type<B>((T)desired), __ATOMIC_RELAXED);                       \
  }                                                                                                               \
  template <class T>                                                                                              \
  inline T atomic_exchange_explicit(volatile SPACE atomic<T> *object, msl_operand<T> desired, memory_order) {     \
    using B = msl_atomic_bits<T>;                                                                                 \
    return as_type<T>(__atomic_exchange_n((volatile SPACE B *)object, as_type<B>((T)desired), __ATOMIC_RELAXED)); \
  }                                                                                                               \
  template <class T>                                                                                              \
  inline bool atomic_compare_exchange_weak_explicit(volatile SPACE atomic<T> *object, thread T *expected,         \
                                                    msl_operand<T> desired, memory_order, memory_order) {         \
    using B = msl_atomic_bits<T>;                                                                                 \
    B seen = as_type<B>(*expected);                                                                               \
    bool done = __atomic_compare_exchange_n((volatile SPACE B *)object, &seen, as_type<B>((T)desired), true,      \
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED);                                  \
    *expected = as_type<T>(seen);                                                                                 \
    return done;                                                                                                  \
  }                                                                                                               \
  MSL_MODIFY(SPACE, atomic_fetch_add_explicit, (msl_counts<T> || is_same<T, float>::value), __atomic_fetch_add)   \
  MSL_MODIFY(SPACE, atomic_fetch_sub_explicit, (msl_counts<T> || is_same<T, float>::value), __atomic_fetch_sub)   \
  MSL_MODIFY(SPACE, atomic_fetch_and_explicit, msl_counts<T>, __atomic_fetch_and)                                 \
  MSL_MODIFY(SPACE, atomic_fetch_or_explicit, msl_counts<T>, __atomic_fetch_or)                                   \
  MSL_MODIFY(SPACE, atomic_fetch_xor_explicit, msl_counts<T>, __atomic_fetch_xor)                                 \
  MSL_MODIFY(SPACE, atomic_fetch_min_explicit, msl_counts<T>, __atomic_fetch_min)                                 \
  MSL_MODIFY(SPACE, atomic_fetch_max_explicit, msl_counts<T>, __atomic_fetch_max)
MSL_ATOMICS(device)
MSL_ATOMICS(threadgroup)
#undef MSL_ATOMICS
#undef MSL_MODIFY

// ulong has these two alone, and they return nothing.
#define MSL_ULONG_ATOMIC(NAME, BETTER)                                                                     \
  inline void NAME(volatile device atomic<ulong> *object, ulong operand, memory_order) {                   \
    volatile device ulong *bits = (volatile device ulong *)object;                                         \
    ulong old = __atomic_load_n(bits, __ATOMIC_RELAXED);                                                   \
    while (operand BETTER old &&                                                                           \
           !__atomic_compare_exchange_n(bits, &old, operand, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
  }
MSL_ULONG_ATOMIC(atomic_min_explicit, <)
MSL_ULONG_ATOMIC(atomic_max_explicit, >)
#undef MSL_ULONG_ATOMIC

}  // namespace metal
