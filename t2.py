import numpy as np, saccade, sys, itertools
rng=np.random.default_rng(0)
def reference(q,k,v):
    g=q.shape[1]//k.shape[1]
    q,k,v=(x.astype(np.float64) for x in (q,k.repeat(g,1),v.repeat(g,1)))
    s=q@k.swapaxes(2,3)/np.sqrt(q.shape[-1]); w=np.exp(s-s.max(-1,keepdims=True)); return w/w.sum(-1,keepdims=True)@v
def pack(c): return (c[...,0::2]|c[...,1::2]<<4).astype(np.uint8)
for q_n,keys,d,blocks,zero in itertools.product((1,9),(301,),(64,128,40),(1,2,4,None),(False,True)):
    if blocks and d//blocks & (d//blocks-1): continue
    q=rng.standard_normal((2,6,q_n,d),np.float32)
    ck,cv=(rng.integers(0,16,(2,2,keys,d)).astype(np.uint8) for _ in 'kv')
    sh=(2,2,keys)+((blocks,) if blocks else ())
    sc=[rng.uniform(.02,.3,sh).astype(np.float32) for _ in 'kv']
    zs=[rng.uniform(-2,17,sh).astype(np.float32) for _ in 'kv']
    def fl(c,s,z):
        b=blocks or 1
        s=s.reshape(2,2,keys,b).repeat(d//b,3); z=z.reshape(2,2,keys,b).repeat(d//b,3) if zero else 8
        return (c.astype(np.float32)-z)*s
    out=saccade.attention(q,pack(ck),pack(cv),k_scale=sc[0],v_scale=sc[1],**(dict(k_zero=zs[0],v_zero=zs[1]) if zero else {}))
    e=np.abs(out-reference(q,fl(ck,sc[0],zs[0]),fl(cv,sc[1],zs[1]))).max()
    print(q_n,d,blocks,zero,e)
