// Probes of the front end that Metal refuses: `//! name`, then `//= a part of the message`, then as in accepted.metal.
//! a device pointer to a threadgroup array
//= cannot initialize a variable of type '__global float *
threadgroup float s[4]; device float *p = s; y[0] = p[0];
//! a store through const
//= read-only variable is not assignable
x[0] = 1;
//! a helper given another address space
//= no matching function for call to 'f'
//? inline float f(const threadgroup float *p) { return p[0]; }
y[0] = f(x);
//! double
//= 'double'
double d = 1; y[0] = d;
//! threadgroup memory in a helper
//= local address space
//? inline float f(float v) { threadgroup float s[2]; s[0] = v; return s[0]; }
y[0] = f(1.0f);
//! new
//= 'default new' is not supported
thread int *p = new int; y[0] = *p;
//! try
//= cannot use 'try' with exceptions disabled
try { y[0] = 1; } catch (...) {}
//! virtual functions
//= virtual functions
struct S { virtual float f() { return 1; } }; y[0] = 1;
//! function pointers
//= pointers to functions are not allowed
//? inline float f(float v) { return v; }
float (*g)(float) = f; y[0] = g(1);
//! the standard library
//= undeclared identifier 'std'
y[0] = std::exp(1.0f);
//! a name of CUDA
//= __syncthreads
__syncthreads(); y[0] = threadIdx.x;
//! a function of OpenCL
//= get_global_id
y[get_global_id(0)] = 1;
//! a conversion of OpenCL
//= convert_float4
y[0] = convert_float4(int4(1)).x;
//! a builtin of OpenCL
//= native_exp
y[0] = native_exp(x[0]);
//! a type of GLSL
//= unknown type name 'vec4'
vec4 v; y[0] = 1;
//! erf
//= undeclared identifier 'erf'
y[0] = erf(x[0]);
//! a reinterpretation to another size
//= as_type: the two types differ in size
y[0] = as_type<float>((ushort)1);
//! an atomic operation on a plain pointer
//= no matching function for call to 'atomic_fetch_add_explicit'
atomic_fetch_add_explicit(y, 1.0f, memory_order_relaxed);
//! a stronger order for an operation
//= no matching function for call to 'atomic_store_explicit'
threadgroup atomic_int a; atomic_store_explicit(&a, 1, memory_order_seq_cst); y[0] = 1;
//! an atomic of half
//= Metal has atomics of int, uint, bool, float and ulong only
threadgroup atomic<half> a; y[0] = 1;
//! the minimum of atomic floats
//= atomic_fetch_min_explicit does not exist for this type in Metal
device atomic<float> *a = (device atomic<float> *)y; atomic_fetch_min_explicit(a, 1.0f, memory_order_relaxed);
//! too few components
//= the constructor of a vector has too few or too many components
y[0] = float4(1, 2, 3).x;
//! too many components
//= the constructor of a vector has too few or too many components
y[0] = float2(float2(1), 3).x;
//! a vector from a longer one
//= a vector is made from one vector of another size
y[0] = float2(float4(1)).x;
//! an implicit conversion between vectors
//= cannot initialize a variable of type '__private int4'
float4 v = 1; int4 i = v; y[0] = i.x;
//! min of a float and an int
//= call to 'min' is ambiguous
y[0] = min(x[0], 0);
//! pow of a half and a float
//= call to 'pow' is ambiguous
y[0] = pow(half(1), x[0]);
//! exp of an integer
//= call to 'exp' is ambiguous
y[0] = exp(1);
//! popcount of a float
//= no matching function for call to 'popcount'
y[0] = popcount(x[0]);
//! a bitwise reduction of floats
//= no matching function for call to 'simd_or'
y[0] = simd_or(x[0]);
//! a half for a bfloat
//= incompatible type '__private half'
bfloat b = 0; half h = 0; b = h; y[0] = b;
//! a simdgroup matrix of another size
//= Metal has simdgroup matrices of 8 x 8 only
simdgroup_matrix<float, 16, 16> m; y[0] = 1;
//! a simdgroup matrix of integers
//= Metal has simdgroup matrices of float, half and bfloat only
simdgroup_matrix<int, 8, 8> m; y[0] = 1;
//! a store with another type
//= no matching function for call to 'simdgroup_store'
simdgroup_half8x8 m; simdgroup_store(m, y);
//! a texture
//= texture2d: textures are not covered here
texture2d<float> t; y[0] = 1;
//! an additional argument
//= no matching function for call to 'simd_sum'
y[0] = simd_sum(x[0], 1);
//! an unknown component
//= illegal vector component name 'q'
y[0] = float4(1).q;
//! a swizzle beyond the vector
//= vector component access exceeds type
y[0] = float2(1).z;
//! an unknown name
//= undeclared identifier 'thread_id'
y[thread_id] = 1;
