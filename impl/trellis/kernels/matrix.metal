// For many vectors: a simdgroup has 64 columns of 16 vectors. Eight rows of weights are decoded into threadgroup memory
// and multiplied as 8 x 8 matrices, whose sums a simdgroup matrix adds in an order of its own.
constexpr uint width = 64, vectors = 16;
threadgroup float weights[SIMDGROUPS][8][width];
threadgroup float inputs[SIMDGROUPS][vectors][8];
uint own = simdgroup_index_in_threadgroup, lane = thread_index_in_simdgroup;
uint strip = threadgroup_position_in_grid.y * SIMDGROUPS + own, block = strip / (BLOCK / width);
Part part = part_of<K>(shape, block, threadgroup_position_in_grid.z);
if (block >= part.columns / BLOCK) return;
uint first = part.vector * vectors, count = min(vectors, uint(shape[4]) - first);
uint column = strip % (BLOCK / width) * width;
const device uint* words = codes + part.first_word;
simdgroup_float8x8 sums[2][width / 8];
UNROLLED
for (uint m = 0; m < 2; ++m)
    UNROLLED
    for (uint n = 0; n < width / 8; ++n) sums[m][n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
for (uint row = part.begin; row < part.end; row += 8) {
    uint rows = min(8u, part.end - row);
    // Eight columns of a row for each lane, twice. Rows beyond the end are zero, and so are vectors.
    for (uint task = lane; task < 8 * (width / 8); task += 32) {
        uint down = task / (width / 8), eight = task % (width / 8);
        Run<K> run((BLOCK - 8 - column - eight * 8) / 8);
        ulong at = ulong(row + min(down, rows - 1)) * part.stride;
        Words both = words_from<K>(words[at + run.here], words[at + run.next], run.offset);
        float scale = down < rows ? scales[row + down] : 0.0f;
        OVER_OUTPUTS
        for (uint i = 0; i < 8; ++i)
            weights[own][down][eight * 8 + 7 - i] = codeword<CODEBOOK>(window<K>(both, i, part.mask)) * scale;
    }
    for (uint task = lane; task < vectors * 8; task += 32) {
        uint m = task / 8, down = task % 8;
        inputs[own][m][down] = m < count && down < rows ? float(x[ulong(first + m) * part.rows + row + down]) : 0.0f;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 left[2];
    UNROLLED
    for (uint m = 0; m < 2; ++m) simdgroup_load(left[m], &inputs[own][m * 8][0], 8);
    UNROLLED
    for (uint n = 0; n < width / 8; ++n) {
        simdgroup_float8x8 right;
        simdgroup_load(right, &weights[own][0][n * 8], width);
        UNROLLED
        for (uint m = 0; m < 2; ++m) simdgroup_multiply_accumulate(sums[m][n], left[m], right, sums[m][n]);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}
UNROLLED
for (uint m = 0; m < 2; ++m) {
    UNROLLED
    for (uint n = 0; n < width / 8; ++n) simdgroup_store(sums[m][n], &weights[own][0][n * 8], width);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint task = lane; task < 8 * width; task += 32) {
        part.vector = first + m * 8 + task / width;
        if (m * 8 + task / width < count)
            partial[part.sums() + column + task % width] = weights[own][task / width][task % width];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
}
