// As folded.metal, for two neighboring blocks: what a row costs beside its weights is shared by sixteen of them. In
// both layouts the words of the second block of a pair follow those of the first.
constexpr uint block_words = BLOCK * K / 32;
uint pair = threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
Part part = part_of<K>(shape, 2 * pair, threadgroup_position_in_grid.z);
if (2 * pair >= part.columns / BLOCK) return;
Run<K> run(thread_index_in_simdgroup);
const device uint* words = codes + part.first_word;
auto numbers = x + ulong(part.vector) * part.rows;
float first[8] = {0, 0, 0, 0, 0, 0, 0, 0}, second[8] = {0, 0, 0, 0, 0, 0, 0, 0};
uint row = part.begin;
for (; row + ROWS <= part.end; row += ROWS) {
    uint here[ROWS][2], after[ROWS][2];
    float factor[ROWS];
    UNROLLED
    for (uint j = 0; j < ROWS; ++j) {
        ulong at = ulong(row + j) * part.stride;
        UNROLLED
        for (uint b = 0; b < 2; ++b) {
            here[j][b] = words[at + b * block_words + run.here];
            after[j][b] = words[at + b * block_words + run.next];
        }
        factor[j] = scales[row + j] * bare_factor<CODEBOOK>() * float(numbers[row + j]);
    }
    UNROLLED
    for (uint j = 0; j < ROWS; ++j) {
        Aligned left = aligned<K>(here[j][0], after[j][0], run.offset);
        OVER_OUTPUTS
        for (uint i = 0; i < 8; ++i)
            first[i] = fma(bare_codeword<CODEBOOK>(window<K>(left, i, part.mask)), factor[j], first[i]);
        Aligned right = aligned<K>(here[j][1], after[j][1], run.offset);
        OVER_OUTPUTS
        for (uint i = 0; i < 8; ++i)
            second[i] = fma(bare_codeword<CODEBOOK>(window<K>(right, i, part.mask)), factor[j], second[i]);
    }
}
for (; row < part.end; ++row) {
    ulong at = ulong(row) * part.stride;
    float factor = scales[row] * bare_factor<CODEBOOK>() * float(numbers[row]);
    Aligned left = aligned<K>(words[at + run.here], words[at + run.next], run.offset);
    OVER_OUTPUTS
    for (uint i = 0; i < 8; ++i) first[i] = fma(bare_codeword<CODEBOOK>(window<K>(left, i, part.mask)), factor, first[i]);
    at += block_words;
    Aligned right = aligned<K>(words[at + run.here], words[at + run.next], run.offset);
    OVER_OUTPUTS
    for (uint i = 0; i < 8; ++i) second[i] = fma(bare_codeword<CODEBOOK>(window<K>(right, i, part.mask)), factor, second[i]);
}
device float* out = partial + part.sums() + (BLOCK - 1 - thread_index_in_simdgroup * 8);
for (uint i = 0; i < 8; ++i) {
    out[-int(i)] = first[i];
    out[int(BLOCK) - int(i)] = second[i];
}
