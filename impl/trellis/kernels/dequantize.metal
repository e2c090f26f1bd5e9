// Writes the matrix [rows][columns] itself, each weight rounded as in a product: eight columns of one row a thread.
uint rows = shape[0], columns = shape[1];
uint eight = thread_position_in_grid.x, row = thread_position_in_grid.y;
uint block = eight / (BLOCK / 8), number_of_run = eight % (BLOCK / 8);
Part part = part_of<K>(shape, block, 0);
Run<K> run(number_of_run);
const device uint* words = codes + part.first_word + ulong(row) * part.stride;
Words both = words_from<K>(words[run.here], words[run.next], run.offset);
float scale = scales[row], weights[8];
OVER_OUTPUTS
for (uint i = 0; i < 8; ++i) weights[i] = codeword<CODEBOOK>(window<K>(both, i, part.mask)) * scale;
device float* out = matrix + ulong(row) * columns + block * BLOCK + (BLOCK - 1 - number_of_run * 8);
for (uint i = 0; i < 8; ++i) out[-int(i)] = weights[i];
