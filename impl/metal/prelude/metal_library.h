// The Metal Shading Language's types and functions on clang's "C++ for OpenCL"; `#include <metal_stdlib>` and the other
// headers of Metal lead here. Compute kernels as `mx.fast.metal_kernel` takes them are the aim. Where Metal refuses a
// text this should refuse it as well; what is not covered fails with a message that names it.
#pragma once

#include "language.h"

#include "scalar_types.h"
#include "type_traits.h"
#include "numeric_limits.h"

#include "vector_types.h"
#include "constructors.h"
#include "conversions.h"

#include "math_functions.h"
#include "integer_functions.h"
#include "geometric_functions.h"

#include "threadgroup.h"
#include "simdgroup.h"
#include "quadgroup.h"
#include "simdgroup_matrix.h"
#include "atomic_types.h"

#include "array_types.h"
#include "packed_types.h"
#include "matrix_types.h"
#include "not_covered.h"

namespace metal {
// The variants with other accuracy: glibc's float functions are at least as accurate as either.
namespace fast {
using namespace msl_float;
}
namespace precise {
using namespace msl_float;
}
}  // namespace metal
