// The beginning of every translation unit; compiled once.
#include "metal_prelude.h"

#include "launch.h"
