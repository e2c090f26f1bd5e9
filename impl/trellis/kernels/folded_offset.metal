// As folded.metal, with plain sums of bytes: what they are too large by, 510 in every row, is subtracted once, from the
// sum. So the sums are of numbers four times as large, and round more.
uint block = threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
Part part = part_of<K>(shape, block, threadgroup_position_in_grid.z);
if (block >= part.columns / BLOCK) return;
Run<K> run(thread_index_in_simdgroup);
const device uint* words = codes + part.first_word;
auto numbers = x + ulong(part.vector) * part.rows;
float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0}, all = 0;
for (uint row = part.begin; row < part.end; ++row) {
    ulong at = ulong(row) * part.stride;
    Aligned both = aligned<K>(words[at + run.here], words[at + run.next], run.offset);
    float factor = scales[row] * INVERSE_SIGMA * float(numbers[row]);
    all += factor;
    OVER_OUTPUTS
    for (uint i = 0; i < 8; ++i) {
        uint bytes = add_bytes(hashed<CODEBOOK>(window<K>(both, i, part.mask)), 0);
        sums[i] = fma(float(int(bytes)), factor, sums[i]);
    }
}
device float* out = partial + part.sums() + (BLOCK - 1 - thread_index_in_simdgroup * 8);
for (uint i = 0; i < 8; ++i) out[-int(i)] = fma(-510.0f, all, sums[i]);
