/**
 * The coefficients of the contract's 2^r, |r| <= 1/2, highest power first: minimax in relative
 * error with constant term 1, so that the most probable id weighs 2^40 exactly.
 */
#ifndef TGI_OPS_SAMPLE_WEIGHT_H
#define TGI_OPS_SAMPLE_WEIGHT_H

#define TGI_SAMPLE_LOG2_E 0x1.715476p+0f
#define TGI_SAMPLE_LEAST_EXPONENT (-60.0f)
#define TGI_SAMPLE_POLYNOMIAL                                                                      \
  {                                                                                                \
    0x1.4176b2p-13f, 0x1.5f0964p-10f, 0x1.3b2dd6p-7f, 0x1.c6af7ap-5f, 0x1.ebfbdcp-3f,              \
        0x1.62e430p-1f, 1.0f                                                                       \
  }
enum { kSamplePowers = 7 };

#endif
