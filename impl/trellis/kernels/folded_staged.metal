// As folded.metal, but the factors of STAGED rows are made once by a threadgroup, and kept in its memory for all of its
// simdgroups.
threadgroup float factors[STAGED];
uint block = threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
Part part = part_of<K>(shape, block, threadgroup_position_in_grid.z);
bool works = block < part.columns / BLOCK;  // others come to the barriers as well
Run<K> run(thread_index_in_simdgroup);
const device uint* words = codes + part.first_word;
auto numbers = x + ulong(part.vector) * part.rows;
float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
for (uint staged = part.begin; staged < part.end; staged += STAGED) {
    uint stop = min(part.end, staged + STAGED);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint row = staged + thread_index_in_threadgroup; row < stop; row += threads_per_threadgroup.x)
        factors[row - staged] = scales[row] * bare_factor<CODEBOOK>() * float(numbers[row]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint row = staged;
    for (; works && row + ROWS <= stop; row += ROWS) {
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
            float factor = factors[row - staged + j];
            OVER_OUTPUTS
            for (uint i = 0; i < 8; ++i)
                sums[i] = fma(bare_codeword<CODEBOOK>(window<K>(both, i, part.mask)), factor, sums[i]);
        }
    }
    for (; works && row < stop; ++row) {
        ulong at = ulong(row) * part.stride;
        Aligned both = aligned<K>(words[at + run.here], words[at + run.next], run.offset);
        float factor = factors[row - staged];
        OVER_OUTPUTS
        for (uint i = 0; i < 8; ++i) sums[i] = fma(bare_codeword<CODEBOOK>(window<K>(both, i, part.mask)), factor, sums[i]);
    }
}
if (!works) return;
device float* out = partial + part.sums() + (BLOCK - 1 - thread_index_in_simdgroup * 8);
for (uint i = 0; i < 8; ++i) out[-int(i)] = sums[i];
