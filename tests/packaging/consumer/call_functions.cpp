// Uses the C++ interface of an installed posenc.

#include <iostream>

#include <posenc/posenc.h>

int main() {
  const at::Tensor table = posenc::encode(/*seq_len=*/4, /*d_model=*/4);
  std::cout << POSENC_VERSION << ' ' << table.size(0) << ' ' << table.size(1) << '\n';
}
