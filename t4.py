import torch, saccade, time, sys
torch.set_num_threads(1)
B,KV,G,S,D=1,2,4,512,128
q=torch.randn(B,KV*G,1,D)
def cpu(f,n=40):
    f();best=1e9
    for _ in range(7):
        a=time.process_time()
        for _ in range(n): f()
        best=min(best,(time.process_time()-a)/n)
    return best*1e6
E=2*B*KV*S*D
for dt in ("f32","int8","int8b4","int4","int4b4","uint4","uint4b4","int4pages"):
    b=4 if "b4" in dt else None
    sh=(B,KV,S)+((b,) if b else ())
    s=torch.rand(sh)*0.01
    if dt=="f32": k=torch.randn(B,KV,S,D); f=lambda: saccade.attention(q,k,k)
    elif dt.startswith("int8"): k=torch.randint(-127,128,(B,KV,S,D),dtype=torch.int8); f=lambda: saccade.attention(q,k,k,k_scale=s,v_scale=s)
    elif "pages" in dt:
        k=torch.randint(0,256,(S//16,KV,16,D//2),dtype=torch.uint8); s=torch.rand(S//16,KV,16); t=torch.randperm(S//16).int()[None]
        f=lambda: saccade.attention(q,k,k,k_scale=s,v_scale=s,page_table=t)
    else:
        k=torch.randint(0,256,(B,KV,S,D//2),dtype=torch.uint8)
        z={} if dt.startswith("int4") else dict(k_zero=s,v_zero=s)
        f=lambda: saccade.attention(q,k,k,k_scale=s,v_scale=s,**z)
    u=cpu(f); print(dt, round(u,1),"us", round(E/u/1e3,2),"G elements/s", flush=True)
