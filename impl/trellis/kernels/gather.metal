// A simdgroup has eight columns, a lane every 32nd row of them: what the lanes have is added at the end.
uint run_in_part = threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
uint block = run_in_part / (BLOCK / 8);
Part part = part_of<K>(shape, block, threadgroup_position_in_grid.z);
if (block >= part.columns / BLOCK) return;
uint number_of_run = run_in_part % (BLOCK / 8);
Run<K> run(number_of_run);
const device uint* words = codes + part.first_word;
auto numbers = x + ulong(part.vector) * part.rows;
float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
for (uint row = part.begin + thread_index_in_simdgroup; row < part.end; row += 32) {
    ulong at = ulong(row) * part.stride;
    Words both = words_from<K>(words[at + run.here], words[at + run.next], run.offset);
    float scale = scales[row], number = float(numbers[row]);
    OVER_OUTPUTS
    for (uint i = 0; i < 8; ++i)
        sums[i] = fma(codeword<CODEBOOK>(window<K>(both, i, part.mask)) * scale, number, sums[i]);
}
device float* out = partial + part.sums() + (BLOCK - 1 - number_of_run * 8);
UNROLLED
for (uint i = 0; i < 8; ++i) {
    float sum = simd_sum(sums[i]);
    if (thread_index_in_simdgroup == 0) out[-int(i)] = sum;
}
