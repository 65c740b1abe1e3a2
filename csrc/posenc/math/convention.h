#pragma once

namespace posenc {

/// Where the columns of an encoding stand. s_k and c_k are the sine and cosine of pair k.
enum class Order {
  kInterleaved,          ///< s0 c0 s1 c1 ..
  kInterleavedCosFirst,  ///< c0 s0 c1 s1 ..
  kSplit,                ///< s0 s1 .. c0 c1 ..
  kSplitCosFirst,        ///< c0 c1 .. s0 s1 ..
};

/// What an odd d_model means.
enum class Odd {
  kSin,    ///< exponent with the true d_model; the unpaired column is the first function of the order
  kZero,   ///< the encoding of d_model - 1, then a column of zeros
  kCut,    ///< the encoding of d_model + 1 without its last column
  kError,  ///< an odd d_model is refused
};

/// The five numbers and names that tell one published encoding from another.
///
/// Angle of pair k at position p, in radians: p * position_scale * base^(-2k / (w - 2 * freq_shift)), where w is
/// d_model when that is even, and follows `odd` otherwise (d_model, d_model - 1 or d_model + 1).
struct Convention {
  double base = 10000.0;        ///< base of the geometric progression of frequencies; finite, > 0
  double freq_shift = 0.0;      ///< s in the exponent's denominator: 0 = the paper, 1 = tensor2tensor, fairseq
  double position_scale = 1.0;  ///< factor on every position; finite
  Order order = Order::kInterleaved;
  Odd odd = Odd::kSin;
};

}  // namespace posenc
