// The helpers that MLX puts before every kernel, read from the installed MLX itself: elem_to_loc, Limits, complex64_t,
// ceildiv and the rest of mlx/backend/metal/kernels/utils.h, with what it includes.
#pragma once

#include "metal_library.h"

// clang does not let a constructor or method that is qualified `thread` make or take a temporary. Without the word it
// takes objects of any address space but constant, which has its own overloads in those headers.
#undef thread
#define thread
#include "mlx/backend/metal/kernels/utils.h"
#undef thread
#define thread __private
