// <metal_type_traits>, and what the rest of the prelude needs to know of types.
#pragma once

#include "scalar_types.h"

namespace metal {

template <class T, T v>
struct integral_constant {
  static constexpr constant T value = v;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return v; }
  constexpr T operator()() const { return v; }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool B, class T, class F>
struct conditional { using type = T; };
template <class T, class F>
struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;

template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> { using type = T; };
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;

template <class... Bs>
struct conjunction : true_type {};
template <class B, class... Bs>
struct conjunction<B, Bs...> : conditional_t<bool(B::value), conjunction<Bs...>, B> {};
template <class... Bs>
struct disjunction : false_type {};
template <class B, class... Bs>
struct disjunction<B, Bs...> : conditional_t<bool(B::value), B, disjunction<Bs...>> {};
template <class B>
struct negation : bool_constant<!bool(B::value)> {};
// MLX's atomic.h uses the name that Apple's header gives it.
template <class... Bs>
using _disjunction = disjunction<Bs...>;

template <class T>
struct remove_const { using type = T; };
template <class T>
struct remove_const<const T> { using type = T; };
template <class T>
struct remove_volatile { using type = T; };
template <class T>
struct remove_volatile<volatile T> { using type = T; };
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
using remove_volatile_t = typename remove_volatile<T>::type;

// In clang the address space is a qualifier of the type: cv removal has to look through it.
template <class T>
struct remove_addrspace { using type = T; };
template <class T>
struct remove_addrspace<device T> { using type = T; };
template <class T>
struct remove_addrspace<constant T> { using type = T; };
template <class T>
struct remove_addrspace<threadgroup T> { using type = T; };
template <class T>
struct remove_addrspace<thread T> { using type = T; };
template <class T>
using remove_addrspace_t = typename remove_addrspace<T>::type;

template <class T>
struct remove_cv { using type = remove_volatile_t<remove_const_t<T>>; };
template <class T>
using remove_cv_t = typename remove_cv<T>::type;

template <class T>
struct remove_reference { using type = T; };
template <class T>
struct remove_reference<T &> { using type = T; };
template <class T>
struct remove_reference<T &&> { using type = T; };
template <class T>
using remove_reference_t = typename remove_reference<T>::type;

template <class T>
struct remove_pointer { using type = T; };
template <class T>
struct remove_pointer<T *> { using type = T; };
template <class T>
using remove_pointer_t = typename remove_pointer<T>::type;

template <class T>
struct remove_extent { using type = T; };
template <class T>
struct remove_extent<T[]> { using type = T; };
template <class T, size_t N>
struct remove_extent<T[N]> { using type = T; };
template <class T>
using remove_extent_t = typename remove_extent<T>::type;

template <class T>
struct decay { using type = remove_addrspace_t<remove_cv_t<remove_addrspace_t<remove_reference_t<T>>>>; };
template <class T>
using decay_t = typename decay<T>::type;

template <class T>
struct type_identity { using type = T; };

template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};

// The type without any qualifier, for the traits that do not look at qualifiers.
template <class T>
using msl_plain = remove_addrspace_t<remove_cv_t<remove_addrspace_t<remove_cv_t<T>>>>;

template <class T>
struct msl_is_integral : false_type {};
template <class T>
struct msl_is_float : false_type {};
#define MSL_X(T) template <> struct msl_is_integral<T> : true_type {};
MSL_FOR_INTEGERS(MSL_X)
MSL_X(bool)
#undef MSL_X
#define MSL_X(T) template <> struct msl_is_float<T> : true_type {};
MSL_FOR_FLOATS(MSL_X)
#undef MSL_X

template <class T>
struct is_integral : msl_is_integral<msl_plain<T>> {};
template <class T>
struct is_floating_point : msl_is_float<msl_plain<T>> {};
template <class T>
struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <class T>
struct is_void : is_same<msl_plain<T>, void> {};
template <class T>
struct is_scalar : bool_constant<is_arithmetic<T>::value || __is_pointer(T) || __is_enum(T)> {};
template <class T>
struct is_signed : bool_constant<is_arithmetic<T>::value && msl_plain<T>(-1) < msl_plain<T>(0)> {};
template <class T>
struct is_unsigned : bool_constant<is_integral<T>::value && (msl_plain<T>(-1) > msl_plain<T>(0))> {};
template <class T>
struct is_const : false_type {};
template <class T>
struct is_const<const T> : true_type {};
template <class T>
struct is_volatile : false_type {};
template <class T>
struct is_volatile<volatile T> : true_type {};
template <class T>
struct is_pointer : bool_constant<__is_pointer(T)> {};
template <class T>
struct is_reference : bool_constant<__is_reference(T)> {};
template <class T>
struct is_array : bool_constant<__is_array(T)> {};
template <class T>
struct is_enum : bool_constant<__is_enum(T)> {};
template <class T>
struct is_class : bool_constant<__is_class(T)> {};
template <class T>
struct is_union : bool_constant<__is_union(T)> {};
template <class T>
struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <class From, class To>
struct is_convertible : bool_constant<__is_convertible(From, To)> {};
template <class Base, class Derived>
struct is_base_of : bool_constant<__is_base_of(Base, Derived)> {};

template <class T>
struct rank : integral_constant<size_t, 0> {};
template <class T, size_t N>
struct rank<T[N]> : integral_constant<size_t, rank<T>::value + 1> {};

#define MSL_X(S, U)                                        \
  template <> struct make_unsigned<S> { using type = U; }; \
  template <> struct make_unsigned<U> { using type = U; }; \
  template <> struct make_signed<S> { using type = S; };   \
  template <> struct make_signed<U> { using type = S; };
template <class T>
struct make_unsigned;
template <class T>
struct make_signed;
MSL_X(char, uchar)
MSL_X(short, ushort)
MSL_X(int, uint)
MSL_X(long, ulong)
#undef MSL_X
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;
template <class T>
using make_signed_t = typename make_signed<T>::type;

template <class A, class B>
constexpr constant bool is_same_v = is_same<A, B>::value;
template <class From, class To>
constexpr constant bool is_convertible_v = is_convertible<From, To>::value;
template <class Base, class Derived>
constexpr constant bool is_base_of_v = is_base_of<Base, Derived>::value;
#define MSL_X(NAME) \
  template <class T> constexpr constant bool NAME##_v = NAME<T>::value;
MSL_X(is_integral) MSL_X(is_floating_point) MSL_X(is_arithmetic) MSL_X(is_void) MSL_X(is_scalar) MSL_X(is_signed)
MSL_X(is_unsigned) MSL_X(is_const) MSL_X(is_volatile) MSL_X(is_pointer) MSL_X(is_reference) MSL_X(is_array)
MSL_X(is_enum) MSL_X(is_class) MSL_X(is_union) MSL_X(is_trivially_copyable)
#undef MSL_X

// A value of T in an unevaluated operand.
template <class T>
T declval();

// Depends on T and is never true: for a static_assert in a template that must not be used.
template <class T>
constexpr constant bool msl_never = false;

}  // namespace metal
