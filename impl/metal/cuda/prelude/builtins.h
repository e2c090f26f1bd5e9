// Lets <metal_math> use math.h: NVIDIA's processors have no exp, and no library to take one from is linked.
#pragma once
#include "math.h"

#define __builtin_acosf msl_acosf
#define __builtin_acoshf msl_acoshf
#define __builtin_asinf msl_asinf
#define __builtin_asinhf msl_asinhf
#define __builtin_atanf msl_atanf
#define __builtin_atanhf msl_atanhf
#define __builtin_atan2f msl_atan2f
#define __builtin_cosf msl_cosf
#define __builtin_coshf msl_coshf
#define __builtin_expf msl_expf
#define __builtin_exp2f msl_exp2f
#define __builtin_exp10f msl_exp10f
#define __builtin_fmodf msl_fmodf
#define __builtin_ilogbf msl_ilogbf
#define __builtin_ldexpf msl_ldexpf
#define __builtin_logf msl_logf
#define __builtin_log2f msl_log2f
#define __builtin_log10f msl_log10f
#define __builtin_powf msl_powf
#define __builtin_sinf msl_sinf
#define __builtin_sinhf msl_sinhf
#define __builtin_tanf msl_tanf
#define __builtin_tanhf msl_tanhf
