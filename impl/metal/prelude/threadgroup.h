// <metal_compute>: barriers and memory fences (MSL specification 6.9.1).
#pragma once

#ifdef __NVPTX__
#include "../cuda/prelude/warp.h"
#else
#include "runtime_api.h"
#endif
#include "type_traits.h"

// The hidden last parameter of what the runtime has to know the place of. A class, so that no argument of the kernel's
// can be taken for it.
struct msl_site {
  msl_u32 number;
#ifdef __NVPTX__
  msl_u32 lanes;  // of the simdgroup: those that come to this place together
#endif
};
#ifdef __NVPTX__
#define MSL_HERE msl_site site = msl_site{MSL_SITE, msl_rt_lanes()}
#else
#define MSL_HERE msl_site site = msl_site{MSL_SITE}
#endif

namespace metal {

enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16,
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return (mem_flags)((int)a & (int)b); }

#ifdef __NVPTX__
inline void threadgroup_barrier(mem_flags) { msl_rt_threadgroup_barrier(0); }
inline void simdgroup_barrier(mem_flags, MSL_HERE) { __nvvm_bar_warp_sync(site.lanes); }
#else
inline void threadgroup_barrier(mem_flags, MSL_HERE) { msl_rt_threadgroup_barrier(site.number); }
inline void simdgroup_barrier(mem_flags, MSL_HERE) { msl_rt_meet((const thread void *)0, 0, site.number); }
#endif

}  // namespace metal
