// As balanced_rows.metal, but all that multiplies a row's codewords is one number: scale, factor of the codebook, x.
// What is left for each weight is a hash, a sum of bytes, a subtraction and a multiply-add.
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
    float factor[ROWS];
    UNROLLED
    for (uint j = 0; j < ROWS; ++j) {
        ulong at = ulong(row + j) * part.stride;
        here[j] = words[at + run.here];
        after[j] = words[at + run.next];
        factor[j] = scales[row + j] * bare_factor<CODEBOOK>() * float(numbers[row + j]);
    }
    UNROLLED
    for (uint j = 0; j < ROWS; ++j) {
        Aligned both = aligned<K>(here[j], after[j], run.offset);
        OVER_OUTPUTS
        for (uint i = 0; i < 8; ++i)
            sums[i] = fma(bare_codeword<CODEBOOK>(window<K>(both, i, part.mask)), factor[j], sums[i]);
    }
}
for (; row < part.end; ++row) {
    ulong at = ulong(row) * part.stride;
    Aligned both = aligned<K>(words[at + run.here], words[at + run.next], run.offset);
    float factor = scales[row] * bare_factor<CODEBOOK>() * float(numbers[row]);
    OVER_OUTPUTS
    for (uint i = 0; i < 8; ++i) sums[i] = fma(bare_codeword<CODEBOOK>(window<K>(both, i, part.mask)), factor, sums[i]);
}
device float* out = partial + part.sums() + (BLOCK - 1 - thread_index_in_simdgroup * 8);
for (uint i = 0; i < 8; ++i) out[-int(i)] = sums[i];
