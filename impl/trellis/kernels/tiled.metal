// As balanced.metal, for TILE vectors at a time: a weight is decoded once for all of them. Each vector's sums are added
// in the same order as alone.
uint block = threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
Part part = part_of<K>(shape, block, threadgroup_position_in_grid.z);
if (block >= part.columns / BLOCK) return;
uint first = part.vector * TILE, count = min(uint(TILE), uint(shape[4]) - first);
Run<K> run(thread_index_in_simdgroup);
const device uint* words = codes + part.first_word;
// A tile that is not full reads its last vector again, and writes nothing of it.
ulong numbers[TILE];
float sums[TILE][8];
UNROLLED
for (uint m = 0; m < TILE; ++m) {
    numbers[m] = ulong(first + min(m, count - 1)) * part.rows;
    UNROLLED
    for (uint i = 0; i < 8; ++i) sums[m][i] = 0;
}
for (uint row = part.begin; row < part.end; ++row) {
    ulong at = ulong(row) * part.stride;
    Aligned both = aligned<K>(words[at + run.here], words[at + run.next], run.offset);
    float scale = scales[row], weights[8];
    OVER_OUTPUTS
    for (uint i = 0; i < 8; ++i) weights[i] = codeword<CODEBOOK>(window<K>(both, i, part.mask)) * scale;
    UNROLLED
    for (uint m = 0; m < TILE; ++m) {
        float number = float(x[numbers[m] + row]);
        OVER_OUTPUTS
        for (uint i = 0; i < 8; ++i) sums[m][i] = fma(weights[i], number, sums[m][i]);
    }
}
UNROLLED
for (uint m = 0; m < TILE; ++m) {
    part.vector = first + m;
    device float* out = partial + part.sums() + (BLOCK - 1 - thread_index_in_simdgroup * 8);
    UNROLLED
    for (uint i = 0; i < 8; ++i)
        if (m < count) out[-int(i)] = sums[m][i];
}
