// Probes of the front end: each `//! name` begins a kernel body, and `//? ` lines after it are its header. All of these
// are Metal.
//! addresses and helpers
//? inline float first(const device float *p) { return p[0]; }
//? inline void bump(thread float &v) { v += 1; }
//? inline void fill(thread float *v, int n) { for (int i = 0; i < n; ++i) v[i] = i; }
//? inline float sum(threadgroup const float *s) { return s[0] + s[1]; }
threadgroup float s[4];
float v[4] = {0};
fill(v, 4);
bump(v[0]);
s[0] = v[0];
threadgroup_barrier(mem_flags::mem_threadgroup);
y[0] = first(x) + sum(s);
//! templates, overloads and structs
//? template <typename T, int N> T times(T v) { T r = v; for (int i = 1; i < N; ++i) r += v; return r; }
//? inline float same(float v) { return v; }
//? inline half same(half v) { return v; }
//? template <typename T> struct View { const device T *p; T at(uint i) const thread { return p[i]; } };
//? struct Pair { float a; float b; Pair(float a_, float b_) thread : a(a_), b(b_) {} float sum() thread { return a + b; } };
View<float> view{x};
Pair pair(1, 2);
y[0] = times<float, 3>(x[0]) + same(1.0f) + same(1.0h) + view.at(2) + pair.sum() + Pair(3, 4).a;
//! tables in the header
//? constant float TABLE[2] = {1.0f, 2.0f};
//? constexpr constant float FOLDED[2] = {1.0f, 2.0f};
//? static constant constexpr const int COUNT = 2;
//? constant uchar CODES[4] = {1, 2, 3, 4};
//? constant half HALVES[2] = {0.5h, -1.0h};
static constexpr constant float local_table[2] = {1, 2};
y[0] = TABLE[1] + FOLDED[COUNT - 1] + CODES[3] + HALVES[0] + local_table[1];
//! headers and namespaces
//? #include <metal_stdlib>
//? #include <metal_math>
//? #include <metal_atomic>
//? #include <metal_simdgroup>
//? #include <metal_simdgroup_matrix>
//? #include <metal_compute>
//? #include <metal_integer>
//? #include <metal_limits>
//? #include <metal_type_traits>
//? #include <metal_logging>
//? using namespace metal;
//? METAL_FUNC float helper(float v) { return metal::exp(v) + metal::precise::log(v) + fast::cos(v); }
y[0] = helper(metal::numeric_limits<float>::max());
//! names that are words of OpenCL
float local = 1, global = 2, generic = 3, pipe = 4, read_only = 5, kernel = 6;
y[0] = local + global + generic + pipe + read_only + kernel;
//! pragmas and attributes
_Pragma("clang loop unroll(full)")
for (int i = 0; i < 4; ++i) y[i] = i;
#pragma unroll
for (int i = 0; i < 4; ++i) y[i] = i;
#pragma clang loop unroll_count(2)
for (int i = 0; i < 4; ++i) y[i] = i;
//! lambdas and constant expressions
constexpr int n = 2 * 3;
auto add = [&](float v) { return v + x[0]; };
float a[n];
if constexpr (n == 6) a[0] = 1;
y[0] = add(a[0]);
//! conversions that are implicit
half h = x[0];
float f = h;
int i = f;
bfloat b = bfloat(f);
float back = b;
h *= 2;
y[0] = f + i + back + h;
//! bfloat beside float is float
float from_max = max(bfloat(x[0]), 0.0f) + fma(bfloat(1), x[0], bfloat(2)) + clamp(bfloat(3), 0.0f, 1.0f);
static_assert(sizeof(pow(bfloat(1), 2.0f)) == 4 && sizeof(min(bfloat(1), bfloat(2))) == 2);
y[0] = from_max + bfloat(1) * 2.0f + pow(x[0], 2) + atan2(x[0], 1);
//! explicit casts
//? enum class Mode { on = 1 };
//? struct Bits { Bits(float v) { bits = as_type<uint>(v); } operator float16_t() { return half(1); } uint bits; };
half h = half(2);
bfloat b = static_cast<bfloat16_t>(h) + bfloat(h);
float4 v = static_cast<float4>(half4(h)) + float4(static_cast<int4>(float4(1.5f)));
Mode mode = static_cast<Mode>(1);
y[0] = static_cast<float>(b) + v.x + static_cast<int>(mode) + static_cast<Bits>(1.0f).bits + half(Bits(1.0f));
static_cast<void>(h);
//! arrays by value
//? inline metal::array<float, 2> two(float v) { return {v, v + 1}; }
array<float, 2> pair = two(x[0]);
pair[0] += 1;
uniform<int> n = make_uniform(3);
y[n] = pair[0] + pair.size();
//! objects in constant memory
constant packed_float3 *packed = (constant packed_float3 *)TABLE;
constant float2x2 *matrices = (constant float2x2 *)TABLE;
packed_float3 p = packed[0];
float2x2 m = matrices[1];
p = packed[1];
m = matrices[0];
y[0] = p.x + m[0][1] + packed[1][2];
//? constant float TABLE[16] = {};
//! vectors behind device pointers
const device half4 *p = (const device half4 *)x;
const device uint2 *q = reinterpret_cast<const device uint2 *>(x);
half4 v = p[0];
thread half4 &r = v;
r.xy = r.yx * 2.0h;
((device float2 *)y)[0] = float2(r.xy) + float2(q[1]);
//! references and arrays of vectors
//? inline float trace(thread float4 (&rows)[4]) { return rows[0].x + rows[1].y; }
//? inline void scale(device float (*rows)[8], float by) { rows[0][1] = by; }
float4 rows[4] = {};
rows[1] = float4(1);
scale((device float (*)[8])y, trace(rows));
//! type traits
static_assert(is_same_v<half, float16_t> && is_floating_point_v<bfloat> && !is_integral_v<float>);
static_assert(is_same_v<conditional_t<true, int, float>, int> && is_signed_v<char> && is_unsigned_v<ulong>);
static_assert(is_same_v<remove_cv_t<const int>, int> && is_same_v<enable_if_t<true, uint>, uint>);
static_assert(sizeof(size_t) == 8 && sizeof(long) == 8 && sizeof(half3) == 8);
y[0] = 0;
//! atomics
threadgroup atomic_int count;
device atomic<float> *to = (device atomic<float> *)y;
atomic_store_explicit(&count, 1, memory_order_relaxed);
atomic_fetch_add_explicit(to, 1, memory_order_relaxed);
//! a switch, a do loop and nested blocks
switch (int(x[0])) {
  case 0: y[0] = 1; break;
  default: y[0] = 2;
}
do { y[0] += 1; } while (y[0] < 3);
{ { y[1] = 1; } }
//! simdgroup matrices in arrays and structs
//? struct Tile { simdgroup_matrix<float, 8, 8> m[2]; };
Tile tile;
simdgroup_half8x8 a(1.0h);
for (int i = 0; i < 2; ++i) tile.m[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
simdgroup_multiply_accumulate(tile.m[0], a, a, tile.m[0]);
y[0] = tile.m[0].thread_elements()[0];
//! helpers that MLX adds
complex64_t c(1.0f, 2.0f);
c = c * c + complex64_t(1.0f);
y[0] = ceildiv(7, 2) + Limits<half>::max + WorkPerThread<float>::n + c.imag + log1p(x[0]);
