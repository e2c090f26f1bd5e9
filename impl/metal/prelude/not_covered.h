// Parts of Metal that this backend does not have. Their names exist, so that a kernel that uses one is told which.
#pragma once

#include "type_traits.h"

namespace metal {

enum class access { sample, read, write, read_write };

#define MSL_NOT_COVERED(NAME, WHAT)                                       \
  template <class T = float, access a = access::sample>                   \
  struct NAME {                                                           \
    static_assert(msl_never<T>, #NAME ": " WHAT " are not covered here"); \
  };
MSL_NOT_COVERED(texture1d, "textures")
MSL_NOT_COVERED(texture1d_array, "textures")
MSL_NOT_COVERED(texture2d, "textures")
MSL_NOT_COVERED(texture2d_array, "textures")
MSL_NOT_COVERED(texture3d, "textures")
MSL_NOT_COVERED(texturecube, "textures")
MSL_NOT_COVERED(texture_buffer, "textures")
MSL_NOT_COVERED(depth2d, "textures")
MSL_NOT_COVERED(imageblock, "imageblocks")
MSL_NOT_COVERED(visible_function_table, "function tables")
#undef MSL_NOT_COVERED

}  // namespace metal
