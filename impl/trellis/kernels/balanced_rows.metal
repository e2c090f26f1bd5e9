// As balanced.metal, but the words of ROWS rows are on their way before the first of them is used. Sums are added in
// the same order.
uint block = threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
Part part = part_of<K>(shape, block, threadgroup_position_in_grid.z);
if (block >= part.columns / BLOCK) return;
Run<K> run(thread_index_in_simdgroup);
const device uint* words = codes + part.first_word;
auto numbers = x + ulong(part.vector) * part.rows;
float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
uint row = part.begin;
for (; row + ROWS <= part.end; row += ROWS) {
    uint here[ROWS], after[ROWS];
    UNROLLED
    for (uint j = 0; j < ROWS; ++j) {
        ulong at = ulong(row + j) * part.stride;
        here[j] = words[at + run.here];
        after[j] = words[at + run.next];
    }
    UNROLLED
    for (uint j = 0; j < ROWS; ++j) {
        Aligned both = aligned<K>(here[j], after[j], run.offset);
        float scale = scales[row + j], number = float(numbers[row + j]);
        OVER_OUTPUTS
        for (uint i = 0; i < 8; ++i)
            sums[i] = fma(codeword<CODEBOOK>(window<K>(both, i, part.mask)) * scale, number, sums[i]);
    }
}
for (; row < part.end; ++row) {
    ulong at = ulong(row) * part.stride;
    Aligned both = aligned<K>(words[at + run.here], words[at + run.next], run.offset);
    float scale = scales[row], number = float(numbers[row]);
    OVER_OUTPUTS
    for (uint i = 0; i < 8; ++i)
        sums[i] = fma(codeword<CODEBOOK>(window<K>(both, i, part.mask)) * scale, number, sums[i]);
}
device float* out = partial + part.sums() + (BLOCK - 1 - thread_index_in_simdgroup * 8);
for (uint i = 0; i < 8; ++i) out[-int(i)] = sums[i];
