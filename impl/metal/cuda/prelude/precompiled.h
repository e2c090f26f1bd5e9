// The beginning of every translation unit; compiled once.
#include "../../prelude/metal_prelude.h"

#include "../../runtime/launch.h"
#include "bytes.h"
#include "entry.h"
