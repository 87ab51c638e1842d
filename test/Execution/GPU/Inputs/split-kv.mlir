// Decode steps for split-KV on warpgroups: eight query heads for each KV head, so that a few tokens have up to 64 rows.
func.func @grouped(%q: tensor<?x16x?x128xbf16>, %k: tensor<?x2x?x128xbf16>, %v: tensor<?x2x?x128xbf16>) -> tensor<?x16x?x128xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right>
    : (tensor<?x16x?x128xbf16>, tensor<?x2x?x128xbf16>, tensor<?x2x?x128xbf16>) -> tensor<?x16x?x128xbf16>
  return %o : tensor<?x16x?x128xbf16>
}

func.func @sink(%q: tensor<?x12x?x64xf16>, %k: tensor<?x2x?x64xf16>, %v: tensor<?x2x?x64xf16>, %s: tensor<12xf32>) -> tensor<?x12x?x64xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] sink(%s : tensor<12xf32>) mask causal<bottom_right>
    : (tensor<?x12x?x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16>) -> tensor<?x12x?x64xf16>
  return %o : tensor<?x12x?x64xf16>
}

// The logarithm of the sum of each row.
func.func @lse(%q: tensor<?x21x?x64xf16>, %k: tensor<?x3x?x64xf16>, %v: tensor<?x3x?x64xf16>) -> (tensor<?x21x?x64xf16>, tensor<?x21x?xf32>) {
  %o, %l = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right> lse
    : (tensor<?x21x?x64xf16>, tensor<?x3x?x64xf16>, tensor<?x3x?x64xf16>) -> (tensor<?x21x?x64xf16>, tensor<?x21x?xf32>)
  return %o, %l : tensor<?x21x?x64xf16>, tensor<?x21x?xf32>
}

// Head sizes with padded columns.
func.func @padded(%q: tensor<?x4x?x40xf16>, %k: tensor<?x1x?x40xf16>, %v: tensor<?x1x?x72xf16>) -> tensor<?x4x?x72xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x4x?x40xf16>, tensor<?x1x?x40xf16>, tensor<?x1x?x72xf16>) -> tensor<?x4x?x72xf16>
  return %o : tensor<?x4x?x72xf16>
}

// The same with queries whose elements are not contiguous.
func.func @transposed(%q: tensor<?x4x40x?xf16>, %k: tensor<?x1x?x40xf16>, %v: tensor<?x1x?x72xf16>) -> tensor<?x4x72x?xf16> {
  %o = attn.attention %q[b,h,d,s], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x4x40x?xf16>, tensor<?x1x?x40xf16>, tensor<?x1x?x72xf16>) -> tensor<?x4x72x?xf16>
  return %o : tensor<?x4x72x?xf16>
}

// 24 heads of one KV head, more than the rows of a CTA of the other kernel.
func.func @pages(%q: tensor<?x24x?x64xbf16>, %kp: tensor<?x1x?x64xbf16>, %vp: tensor<?x1x?x64xbf16>, %table: tensor<?x?xi32>, %len: tensor<?xi32>)
    -> tensor<?x24x?x64xbf16> {
  %k = attn.paged %kp[b,h,s,d], %table : tensor<?x1x?x64xbf16>, tensor<?x?xi32> -> tensor<?x1x?x64xbf16>
  %v = attn.paged %vp[b,h,s,d], %table : tensor<?x1x?x64xbf16>, tensor<?x?xi32> -> tensor<?x1x?x64xbf16>
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] kv_len(%len : tensor<?xi32>) mask causal<bottom_right>
    : (tensor<?x24x?x64xbf16>, tensor<?x1x?x64xbf16>, tensor<?x1x?x64xbf16>) -> tensor<?x24x?x64xbf16>
  return %o : tensor<?x24x?x64xbf16>
}

// Rows of the largest head size.
func.func @deep(%q: tensor<?x8x?x256xbf16>, %k: tensor<?x2x?x256xbf16>, %v: tensor<?x2x?x256xbf16>) -> tensor<?x8x?x256xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x8x?x256xbf16>, tensor<?x2x?x256xbf16>, tensor<?x2x?x256xbf16>) -> tensor<?x8x?x256xbf16>
  return %o : tensor<?x8x?x256xbf16>
}

// A mask that is more than its bounds, which the producer tests too.
func.func @documents(%q: tensor<?x8x?x128xbf16>, %k: tensor<?x1x?x128xbf16>, %v: tensor<?x1x?x128xbf16>, %ids: tensor<?xi32>) -> tensor<?x8x?x128xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures(%ids : tensor<?xi32>) mask(%b, %h, %i, %j, %of) {
      %x = tensor.extract %of[%i] : tensor<?xi32>
      %y = tensor.extract %of[%j] : tensor<?xi32>
      %same = arith.cmpi eq, %x, %y : i32
      attn.yield %same : i1
    }
    : (tensor<?x8x?x128xbf16>, tensor<?x1x?x128xbf16>, tensor<?x1x?x128xbf16>) -> tensor<?x8x?x128xbf16>
  return %o : tensor<?x8x?x128xbf16>
}

// A schedule that a program gives: 64 rows for a kernel that computes 16 at a time.
func.func @scripted(%q: tensor<?x6x?x32xf32>, %k: tensor<?x1x?x32xf32>, %v: tensor<?x1x?x32xf32>) -> tensor<?x6x?x32xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    {schedule = #attn.schedule<rows = 128, cols = 16384>, split_kv = #attn.split_kv<queries = 16, rows = 64, cols = 256>}
    : (tensor<?x6x?x32xf32>, tensor<?x1x?x32xf32>, tensor<?x1x?x32xf32>) -> tensor<?x6x?x32xf32>
  return %o : tensor<?x6x?x32xf32>
}

// Odd heads see the keys from 100 on only, even heads all keys.
func.func @late_heads(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x1x?x64xbf16>, %v: tensor<?x1x?x64xbf16>) -> tensor<?x8x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask(%b, %h, %i, %j) {
      %zero = arith.constant 0 : index
      %two = arith.constant 2 : index
      %hundred = arith.constant 100 : index
      %rest = arith.remui %h, %two : index
      %even = arith.cmpi eq, %rest, %zero : index
      %late = arith.cmpi sge, %j, %hundred : index
      %holds = arith.ori %even, %late : i1
      attn.yield %holds : i1
    }
    : (tensor<?x8x?x64xbf16>, tensor<?x1x?x64xbf16>, tensor<?x1x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}

// Two keys of 320, the last one and one of the first tile.
func.func @last_keys(%q: tensor<?x8x?x64xbf16>, %k: tensor<?x1x?x64xbf16>, %v: tensor<?x1x?x64xbf16>) -> tensor<?x8x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask(%b, %h, %i, %j) {
      %first = arith.constant 3 : index
      %last = arith.constant 319 : index
      %is_first = arith.cmpi eq, %j, %first : index
      %is_last = arith.cmpi eq, %j, %last : index
      %holds = arith.ori %is_first, %is_last : i1
      attn.yield %holds : i1
    }
    : (tensor<?x8x?x64xbf16>, tensor<?x1x?x64xbf16>, tensor<?x1x?x64xbf16>) -> tensor<?x8x?x64xbf16>
  return %o : tensor<?x8x?x64xbf16>
}

// The same schedule for 24 heads, in parts of 16: the last four see all keys, the others those from 100 on.
func.func @heads_in_parts(%q: tensor<?x24x?x32xf32>, %k: tensor<?x1x?x32xf32>, %v: tensor<?x1x?x32xf32>) -> tensor<?x24x?x32xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask(%b, %h, %i, %j) {
      %twenty = arith.constant 20 : index
      %hundred = arith.constant 100 : index
      %is_last = arith.cmpi sge, %h, %twenty : index
      %late = arith.cmpi sge, %j, %hundred : index
      %holds = arith.ori %is_last, %late : i1
      attn.yield %holds : i1
    } {schedule = #attn.schedule<rows = 128, cols = 16384>, split_kv = #attn.split_kv<queries = 16, rows = 64, cols = 256>}
    : (tensor<?x24x?x32xf32>, tensor<?x1x?x32xf32>, tensor<?x1x?x32xf32>) -> tensor<?x24x?x32xf32>
  return %o : tensor<?x24x?x32xf32>
}
