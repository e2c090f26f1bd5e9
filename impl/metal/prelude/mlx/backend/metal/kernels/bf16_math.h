// Stands before MLX's file of this name, which adds bfloat to Metal's functions by means of Apple's intrinsics. Here the
// Metal library has the same overloads itself (math_functions.h, simdgroup.h).
#pragma once
