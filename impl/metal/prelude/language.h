// The words of the Metal Shading Language that clang's "C++ for OpenCL" spells otherwise, and the words of OpenCL that
// are ordinary names in Metal.
#pragma once

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_non_portable_kernel_param_types : enable

#define device __global
#define constant __constant
#define threadgroup __local
#define thread __private

#define METAL_FUNC inline
#define __METAL__ 1
// Metal 3.2 (macOS 15): bfloat, 64-bit simd shuffles and atomic_thread_fence are there, tensors are not.
#define __METAL_VERSION__ 320
#define __METAL_MACOS__ 1

// Keywords of OpenCL C that kernels use as names. Renamed alike everywhere, so that they stay names.
#define local msl_name_local
#define global msl_name_global
#define generic msl_name_generic
#define kernel msl_name_kernel
#define pipe msl_name_pipe
#define read_only msl_name_read_only
#define write_only msl_name_write_only
#define read_write msl_name_read_write
#define vec_step msl_name_vec_step
