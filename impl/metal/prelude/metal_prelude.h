// What a kernel's text finds before it: the Metal library, the directive with which MLX's text begins, MLX's helpers.
#pragma once

#include "metal_library.h"

using namespace metal;

#include "mlx_helpers.h"
